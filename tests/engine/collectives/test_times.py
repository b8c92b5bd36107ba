"""Simulated time on an idle network against the α–β–γ closed forms."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from testbed.compute_model import ComputeModel
from testbed.engine.collectives.collectives import Collectives
from testbed.policy.collective import ALL_REDUCE
from testbed.policy.collective.predict import finish_times_s
from testbed.policy.collective.schedule import GroupShape
from testbed.simulation.run import SimulationOptions
from testbed.simulation.tcp_model import TcpModel
from testbed.world import World
from tests.contract.tiny import WAN_DELAY_S, WAN_RATE_BPS, tiny_plan
from tests.engine.collectives.worlds import Virtual, names_of, shape_of, with_collectives
from tests.for_each import for_each
from tests.policy.collective.cost import (
    LinkCost,
    blueconnect_s,
    butterfly_s,
    recursive_doubling_s,
    ring_s,
    three_phase_ring_s,
    tree_s,
)

GAMMA = 2 / 4e9  # the compute model reads both operands
OPTIONS = SimulationOptions(
    tcp=TcpModel(slow_start=False, setup_round_trips=0.0, goodput=1.0),
    compute=ComputeModel(work_overhead_s=0.0, message_cost_s=0.0, message_bytes_per_s=math.inf, costs=None),
)
WAN = LinkCost(WAN_DELAY_S + 2e-4, 8 / WAN_RATE_BPS, GAMMA)


def simulated_s(groups: list[int], algorithm: str, size_bytes: int, directory: Path, segments: int = 1) -> float:
    """Time of one all-reduce of shapes, everybody starting at 0."""
    names = names_of(groups)

    async def job(world: World, collectives: Collectives) -> float:
        await collectives.all_reduce(torch.empty(size_bytes // 4, device="meta"), ALL_REDUCE[algorithm])
        return world.now()

    programs = {name: with_collectives(job, names, shape=shape_of(groups, segments)) for name in names}
    plan = tiny_plan(names, step_deadline_s=1e5)
    fast = tuple(replace(site, lan_rate_bps=1e12) for site in plan.network.sites)
    plan = replace(plan, network=replace(plan.network, sites=fast))
    return max(Virtual(directory, OPTIONS)(programs, plan).values())


@for_each("ranks", [4, 6, 8])
@for_each("size_bytes", [40_000, 4_000_000, 40_000_000])
@for_each("algorithm", ["ring", "butterfly", "recursive_doubling", "tree"])
def test_within_two_percent_of_the_closed_form(algorithm: str, ranks: int, size_bytes: int, tmp_path: Path) -> None:
    forms = {"ring": ring_s, "butterfly": butterfly_s, "recursive_doubling": recursive_doubling_s, "tree": tree_s}
    form = forms[algorithm](ranks, size_bytes, WAN)
    if algorithm == "recursive_doubling" and ranks == 6:  # the closed form is only an upper bound there
        schedules = [ALL_REDUCE[algorithm](GroupShape(ranks), rank) for rank in range(ranks)]
        form = max(finish_times_s(schedules, size_bytes, lambda a, b: WAN))
    simulated = simulated_s([1] * ranks, algorithm, size_bytes, tmp_path)
    assert simulated == pytest.approx(form, rel=0.02)


@for_each("algorithm", ["ring", "tree", "double_binary_tree", "three_phase_ring", "torus2d", "binary_blocks"])
@for_each("segments", [1, 4])
def test_any_schedule_as_predicted(algorithm: str, segments: int, tmp_path: Path) -> None:
    groups, size_bytes = [1] * 6, 4_000_000
    shape = shape_of(groups, segments)
    schedules = [ALL_REDUCE[algorithm](shape, rank) for rank in range(6)]
    predicted = max(finish_times_s(schedules, size_bytes, lambda a, b: WAN))
    assert simulated_s(groups, algorithm, size_bytes, tmp_path, segments) == pytest.approx(predicted, rel=0.02)


# ASTRA-sim 2.0, analytical backend, 50 MB, 0.125 GiB/s, α = 10 ms; it adds an endpoint delay of some 90 µs in all.
@for_each(("ranks", "astra_s"), [(8, 0.792008), (64, 1.993509), (256, 5.842239), (1000, 20.724408)])
def test_the_closed_form_is_what_astra_sim_finds(ranks: int, astra_s: float) -> None:
    assert ring_s(ranks, 50e6, LinkCost(0.01, 1 / 134_217_728)) == pytest.approx(astra_s, abs=1e-4)


def test_rings_of_blueconnect_share_the_uplink_of_a_data_centre(tmp_path: Path) -> None:
    inside = LinkCost(1e-4, 8 / 1e12, GAMMA)
    form = blueconnect_s(3, 4, 8_000_000, inside, WAN)
    assert simulated_s([4, 4, 4], "blueconnect", 8_000_000, tmp_path) == pytest.approx(form, rel=0.05)


def test_a_three_phase_ring_reduces_to_representatives_and_broadcasts(tmp_path: Path) -> None:
    inside = LinkCost(1e-4, 8 / 1e12, GAMMA)
    form = three_phase_ring_s(3, 4, 8_000_000, inside, WAN)
    assert simulated_s([4, 4, 4], "three_phase_ring", 8_000_000, tmp_path) == pytest.approx(form, rel=0.02)


def test_the_crossover_of_ring_and_recursive_doubling(tmp_path: Path) -> None:
    from tests.policy.collective.cost import crossover_bytes

    size = int(crossover_bytes(recursive_doubling_s, ring_s, 4, WAN))
    for factor, faster in ((0.7, "recursive_doubling"), (1.3, "ring")):
        times = {
            name: simulated_s([1] * 4, name, int(size * factor), tmp_path / f"{name}{factor}")
            for name in ("ring", "recursive_doubling")
        }
        assert min(times, key=times.__getitem__) == faster, times
