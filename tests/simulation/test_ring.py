"""The ring's recurrence against the schedules' own times, the closed form, ASTRA-sim's, and the roles."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from testbed.compute_model import ComputeModel
from testbed.policy.collective import ALL_REDUCE
from testbed.policy.collective.predict import finish_times_s
from testbed.policy.collective.schedule import GroupShape
from tests.engine.collectives.test_times import GAMMA, OPTIONS, WAN, simulated_s
from tests.for_each import for_each
from tests.policy.collective.cost import LinkCost, ring_s
from tests.simulation.ring import RingLinks, ring_times_s

EXACT = 1e-9


def uneven(ranks: int, seed: int, gamma: float) -> tuple[RingLinks, list[LinkCost]]:
    draw = np.random.default_rng(seed)
    delays, betas = draw.uniform(0.001, 0.1, ranks), draw.uniform(1e-9, 1e-7, ranks)
    return RingLinks(delays, betas, gamma), [LinkCost(d, b, gamma) for d, b in zip(delays, betas, strict=True)]


@for_each("ranks", [2, 3, 5, 8, 13])
@for_each("gamma", [0.0, 1e-8])
def test_as_the_schedules_say_on_uneven_links(ranks: int, gamma: float) -> None:
    links, by_rank = uneven(ranks, ranks, gamma)
    schedules = [ALL_REDUCE["ring"](GroupShape(ranks), rank) for rank in range(ranks)]
    expected = finish_times_s(schedules, 1e7, lambda a, b: by_rank[a])
    assert ring_times_s(1e7, links) == pytest.approx(expected, rel=EXACT)


@for_each("ranks", [2, 8, 1000])
def test_the_closed_form_on_equal_links(ranks: int) -> None:
    links = RingLinks(np.full(ranks, 0.02), np.full(ranks, 8e-8), 1e-9)
    assert ring_times_s(1e8, links) == pytest.approx(ring_s(ranks, 1e8, LinkCost(0.02, 8e-8, 1e-9)), rel=EXACT)


# ASTRA-sim 2.0, analytical backend, 50 MB, 0.125 GiB/s, α = 10 ms; it adds an endpoint delay of some 90 µs in all.
@for_each(("ranks", "astra_s"), [(8, 0.792008), (64, 1.993509), (256, 5.842239), (1000, 20.724408)])
def test_astra_sim_golden_values(ranks: int, astra_s: float) -> None:
    links = RingLinks(np.full(ranks, 0.01), np.full(ranks, 1 / 134_217_728))
    assert ring_times_s(50e6, links).max() == pytest.approx(astra_s, abs=1e-4)


@for_each("ranks", [3, 8])
def test_as_the_roles_take(ranks: int, tmp_path: Path) -> None:
    size = 8_000_000 - 8_000_000 % (4 * ranks)
    exact = replace(
        OPTIONS, compute=ComputeModel(work_overhead_s=0.0, message_cost_s=0.0, message_bytes_per_s=1e15, costs=None)
    )
    assert exact.compute.memory_bytes_per_s == pytest.approx(2 / GAMMA)
    links = RingLinks(np.full(ranks, WAN.alpha_s), np.full(ranks, WAN.beta_s), GAMMA)
    by_roles = simulated_s([1] * ranks, "ring", size, tmp_path)
    assert ring_times_s(size, links, header_bytes=110).max() == pytest.approx(by_roles, rel=2e-4)


def test_a_late_rank_delays_those_behind_it() -> None:
    links = RingLinks(np.full(4, 0.01), np.full(4, 1e-8))
    start = np.array([0.0, 0.0, 5.0, 0.0])
    times = ring_times_s(4e6, links, start)
    assert times.min() > 5.0
    assert times.max() == pytest.approx(5.0 + ring_s(4, 4e6, LinkCost(0.01, 1e-8)), rel=EXACT)
