"""Networks that change in training: TSEngine finds its way again; NetStorm's auxiliary routes.

Nine data centres, thirteen unequal links, a model of 47 MB, sizes only.
"""

from __future__ import annotations

import statistics
from itertools import pairwise
from pathlib import Path

import pytest

from tests.engine.overlay.test_overlays import NINE_SITES
from tests.engine.runs import Simulated, run

ROUNDS, CHANGE = 30, 12
TSENGINE = ("overlay={tier1: star, tier2: tsengine}", f"training.rounds={ROUNDS}")
LINK = 5  # h4 to h5, 135 Mbit/s
SLOW = "10 Mbit/s"


def nine(directory: Path, *settings: str) -> Simulated:
    return run(directory, "training.model={kind: declared, name: resnet18}", *settings, scenario=NINE_SITES)


def begins(result: Simulated) -> list[float]:
    return [event["t0"] for event in result.of_kind("round", "h9/worker0")]


def times(result: Simulated) -> list[float]:
    moments = begins(result)
    return [after - before for before, after in pairwise(moments)]


def direct(result: Simulated, begin: int, end: int) -> float:
    """Transfers a round between h4 and h5, from round ``begin`` to before ``end``."""
    ends = {"h4", "h5"}
    found = [
        event
        for event in result.of_kind("transfer")
        if begin <= event["round"] < end and {event[at].split("/")[0] for at in ("source", "target")} == ends
    ]
    return len(found) / (end - begin)


@pytest.mark.slow  # 26 s
def test_tsengine_recovers_within_five_rounds_of_a_step_change(tmp_path: Path) -> None:
    """Five rounds after a link has become a fourteenth as fast, rounds take as long as where it always was so slow."""
    at_s = begins(nine(tmp_path / "before", *TSENGINE))[CHANGE] + 0.5
    trace = f"topology.links[{LINK}].rate_trace=[{{at: 0 s, rate: 135 Mbit/s}}, {{at: {at_s:.3f} s, rate: {SLOW}}}]"
    changed = nine(tmp_path / "changed", *TSENGINE, trace)
    settled = nine(tmp_path / "slow", *TSENGINE, f"topology.links[{LINK}].rate={SLOW}")
    # as seldom as where it always was so slow: what is left is exploration
    assert direct(changed, CHANGE + 5, ROUNDS) < 1.5 * direct(settled, 5, ROUNDS)
    recovered, steady = statistics.median(times(changed)[CHANGE + 5 :]), statistics.median(times(settled)[5:])
    assert recovered < 1.15 * steady


def test_auxiliary_routes_carry_what_a_crowded_link_cannot(tmp_path: Path) -> None:
    settings = ("overlay={tier1: star, tier2: {kind: netstorm, auxiliary: 2}}", "training.rounds=6")
    result = nine(tmp_path, *settings)
    passed = [e for e in result.of_kind("transfer") if e["message"] == "spread" and e["round"] == 3]
    chunks = {event["key"] for event in passed}
    assert len(passed) > 9 * len(chunks), "one transfer for each of nine members, and more for detours"
