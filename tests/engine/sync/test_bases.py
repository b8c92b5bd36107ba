"""Asynchronous workers of one data centre: the top tier knows at which value each of them computed its gradient."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from testbed.engine.reply import PULL_ROUND
from testbed.engine.root_store import OverwriteUpdate, RootStore
from testbed.engine.upstream import Bases
from testbed.training.optimizers import KeyOptimizer
from testbed.training.optimizers.compensation import Compensation
from tests.engine.runs import run as simulated
from tests.engine.sync.constant import SIZES, use_constants
from tests.for_each import for_each

JOB = (
    "training.rounds=6",
    "training.evaluate_every=6",
    "device.step_time=10 ms",
    "device.variation=60 %",
    "data_centers[east].workers=3",
    "data_centers[east].worker_devices={worker1: {speed: 0.3}}",
)
GRADIENTS = (0.5, 0.6, 0.7, 0.8, 0.9)  # of hub's, east's and west's workers
SYNC = ("tap", "{tier1: tap, tier2: {kind: ssp, staleness: 1}}", "{tier1: {kind: ssp, staleness: 1}, tier2: tap}")


@for_each("sync", SYNC)
def test_a_gradient_is_compensated_from_the_value_that_its_worker_had(
    sync: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every gradient is another number, so it tells which worker computed it, and at which value."""
    gave: list[tuple[float, float]] = []  # gradient of a worker, value that it had

    def constant(rank: int, values: list[torch.Tensor]) -> float:
        gave.append((GRADIENTS[rank] + 1e-3 * len(gave), float(values[0][0])))
        return gave[-1][0]

    kept: list[int] = []
    used: list[tuple[float, float]] = []
    history: list[float] = []
    real = Compensation.__call__

    def watched(self: Compensation, gradient: torch.Tensor, value: torch.Tensor, member: str | None) -> torch.Tensor:
        if gradient.numel() == SIZES[0]:  # updates of the two keys may come in different orders
            kept.append(len(self._backups))
            history.append(float(value[0]))
            used.append((float(gradient[0]), float(self._backups.get(str(member), self._first)[0])))
        return real(self, gradient, value, member)

    use_constants(monkeypatch, constant)
    monkeypatch.setattr(Compensation, "__call__", watched)
    optimizer = "optimizer={kind: dcasgd, learning_rate: 0.1, compensation: 0.4}"
    done = simulated(tmp_path, *JOB, f"sync={sync}", optimizer)
    values = dict(gave)
    assert len(used) == len(gave) == 5 * 6
    for gradient, backup in used:
        had = min(values, key=lambda each: abs(each - gradient))
        assert had == pytest.approx(gradient, abs=1e-5) and values[had] == pytest.approx(backup, abs=1e-6)
    assert max(kept) <= 3 + 2 * 3, "of each data centre's first value; of each worker of east, two at most"
    updates = [event for event in done.of_kind("update") if event["key"] == 0]
    for event, (_, backup) in zip(updates, used, strict=True):
        assert history[event["version"] - 1 - event["staleness"]] == pytest.approx(backup, abs=1e-6)


def test_what_a_lost_process_had_is_dropped_when_the_next_one_joins() -> None:
    """Else each loss of a data centre would leave a copy of the model for each of its workers."""
    store: Any = object.__new__(RootStore)
    state = KeyOptimizer("dcasgd", {}, torch.ones(2))
    store._keys, store._versions, store._sent_versions = {0: state}, {0: 0}, {}
    store._with_bases = {"east/server1", "east/server10"}
    for member in sorted(store._with_bases):
        for round_ in range(3):
            store.on_value_sent(0, torch.ones(2), member, round_)
    store.on_joined("east/server1")
    kept = {f"east/server10/{round_}" for round_ in range(3)}
    assert {holder for _, holder in store._sent_versions} == kept
    assert state._compensation is not None and state._compensation._backups.keys() == kept


def test_a_resumed_value_is_where_it_was() -> None:
    """Checkpoints are read into main memory; ``meta`` stands for a GPU."""
    update = OverwriteUpdate(torch.ones(2, device="meta"))
    update.load_state({"value": torch.ones(2)})
    assert update.value.is_meta


def test_what_nobody_has_is_forgotten_once() -> None:
    bases = Bases()
    for worker in ("a", "b"):
        bases.sent(0, worker)
    assert bases.note(0, ["a"]) == [PULL_ROUND] and bases.note(0, ["b"]) == [PULL_ROUND]
    bases.arrived(0, 0)
    bases.sent(0, "a")
    bases.arrived(0, 1)
    assert bases.note(0, ["b"]) == [PULL_ROUND], "a has the value of round 0"
    bases.sent(0, "b")
    assert bases.note(0, ["a"]) == [0]
    bases.arrived(0, 2)
    bases.sent(0, "a")
    again = Bases()
    again.load_state(bases.state())
    for each in (bases, again):
        assert each.note(0, ["b"]) == [1, 0] and each.note(0, ["a"]) == [2]
        assert each.note(0, ["a", "b"]) == [1]
