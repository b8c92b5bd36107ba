"""A gradient that is not finite is left out by every algorithm and codec, and gets into no memory of theirs."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from testbed.scenario.matrix import AXES, Combination, overrides, refusals
from tests.faults.runs import faults, run
from tests.faults.schedules import SMALL

ROWS = [
    {axis: kind} for axis in ("sync", "codec", "overlay", "shard", "order") for kind in AXES[axis]
    if not refusals({axis: kind})
]  # fmt: skip
SKIP = "recovery={on_nan: skip}"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "=".join(*row.items()))
def test_no_algorithm_and_no_codec_meets_it(tmp_path: Path, row: Combination) -> None:
    texts = [*overrides(row), *(("order.overlap=none",) if "p3" in row.values() else ())]
    ended = run(tmp_path, *SMALL, *texts, SKIP, faults("kind: nan, node: west/worker0, round: 2"))
    assert ended.error is None
    (warning,) = [event["message"] for event in ended.events("warning") if "non-finite" in event["message"]]
    assert warning.startswith("non-finite gradient: west/worker0, step") and warning.endswith("left out of the round")
    losses = [event["loss"] for event in ended.events("round")]
    assert len(losses) >= 8 and all(loss is not None and math.isfinite(loss) for loss in losses)
