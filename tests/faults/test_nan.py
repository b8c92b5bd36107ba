"""A gradient that is not finite is left out by every algorithm and codec, and gets into no memory of theirs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from testbed.engine.guard import Guarded
from testbed.scenario.matrix import AXES, Combination, overrides, refusals
from tests.faults.runs import faults, run
from tests.faults.schedules import FEW_STEPS, SMALL
from tests.for_each import for_each

ROWS = [
    {axis: kind}
    for axis in ("sync", "codec", "overlay", "shard", "order")
    for kind in AXES[axis]
    if not refusals({axis: kind})
]
SKIP = "recovery={on_nan: skip}"


@pytest.mark.sample(5)  # of 26, which take 6 s
@pytest.mark.parametrize("row", ROWS, ids=lambda row: "=".join(*row.items()))
def test_no_algorithm_and_no_codec_meets_it(tmp_path: Path, row: Combination) -> None:
    texts = [*overrides(row), *FEW_STEPS.get(row.get("sync", ""), ())]
    texts += ["order.overlap=none"] if "p3" in row.values() else []
    ended = run(tmp_path, *SMALL, *texts, SKIP, faults("kind: nan, node: west/worker0, round: 2"))
    assert ended.error is None
    (warning,) = [event["message"] for event in ended.events("warning") if "non-finite" in event["message"]]
    assert warning.startswith("non-finite gradient: west/worker0, step") and warning.endswith("left out of the round")
    losses = [event["loss"] for event in ended.events("round")]
    assert len(losses) >= 8 and all(loss is not None and math.isfinite(loss) for loss in losses)


@for_each("order", ["fifo", "{kind: p3, slice: 1 KiB}"])
def test_where_it_is_ignored_it_happens_all_the_same(tmp_path: Path, order: str) -> None:
    ignored = "recovery={on_nan: ignore}"
    ended = run(tmp_path, *SMALL, f"order={order}", ignored, faults("kind: nan, node: west/worker0, round: 2"))
    assert ended.error is None
    assert [event["targets"] for event in ended.events("fault", node="west/worker0")] == ["west/worker0"]
    losses = [event["loss"] for event in ended.events("round", node="hub/worker0")]
    assert all(math.isfinite(loss) for loss in losses[:3])
    assert all(loss is None or math.isnan(loss) for loss in losses[3:])


@for_each("sync", ["esync", "{kind: hfa, k1: 3, k2: 2}", "fsa"])
def test_it_is_in_the_round_that_was_said_however_many_steps_there_were(tmp_path: Path, sync: str) -> None:
    at = "optimizer={kind: sgd, learning_rate: 0.01, at: worker}"
    fast = "data_centers[west].device.speed=8"
    ended = run(
        tmp_path,
        *SMALL,
        at,
        fast,
        f"sync={sync}",
        SKIP,
        faults("kind: nan, node: west/worker0, round: 6"),
    )
    (fault,) = ended.events("fault", node="west/worker0")
    spans = {event["round"]: (event["t0"], event["t"]) for event in ended.events("round", node="west/worker0")}
    assert spans[6][0] <= fault["t"] + 1e-6 and fault["t"] <= spans[6][1]


@for_each("paradigm", ["allreduce", "gossip"])
def test_without_servers_it_is_told_as_well(tmp_path: Path, paradigm: str) -> None:
    ended = run(tmp_path, *SMALL, f"paradigm={paradigm}", faults("kind: nan, node: west/worker0, round: 2"))
    assert ended.error is not None and "non-finite gradient: west/worker0, step 2" in str(ended.error)
    assert [event["fault"] for event in ended.events("fault", node="west/worker0")] == ["nan"]


def test_a_segment_without_parameters_is_no_place_for_it() -> None:
    """Backward passes begin at the last segment, which may be an activation alone."""
    guard = Guarded(cast(Any, None), "east/worker0", {3}, "ignore")
    assert guard.checked(3, []) == []
    (gradient,) = guard.checked(3, [torch.zeros(2)])
    assert math.isnan(gradient[0]), "the next one is"
