"""Networks that change in training: TSEngine finds its way again; NetStorm's schedule, and its auxiliary routes.

Nine data centres, thirteen unequal links, a model of 47 MB, sizes only.
"""

from __future__ import annotations

import statistics
from itertools import pairwise
from pathlib import Path

from tests.engine.overlay.test_overlays import NINE_SITES
from tests.engine.runs import Simulated, run

ROUNDS, CHANGE = 28, 10
TSENGINE = ("overlay={tier1: star, tier2: tsengine}", f"training.iterations={ROUNDS}")
LINK = 6  # h4 to h6, 140 Mbit/s: the way to three data centres
SLOW = "3 Mbit/s"


def nine(directory: Path, *settings: str) -> Simulated:
    return run(directory, *settings, scenario=NINE_SITES)


def begins(result: Simulated) -> list[float]:
    return [event["t0"] for event in result.of_kind("round", "h9/worker0")]


def times(result: Simulated) -> list[float]:
    moments = begins(result)
    return [after - before for before, after in pairwise(moments)]


def test_tsengine_recovers_within_five_rounds_of_a_step_change(tmp_path: Path) -> None:
    """Five rounds after a link has become fifty times slower, rounds take as long as where it always was so slow."""
    at_s = begins(nine(tmp_path / "before", *TSENGINE))[CHANGE] + 0.5
    trace = f"topology.links[{LINK}].rate_trace=[{{at: 0 s, rate: 140 Mbit/s}}, {{at: {at_s:.3f} s, rate: {SLOW}}}]"
    changed = times(nine(tmp_path / "changed", *TSENGINE, trace))
    settled = times(nine(tmp_path / "slow", *TSENGINE, f"topology.links[{LINK}].rate={SLOW}"))
    assert max(changed[CHANGE : CHANGE + 5]) > 1.3 * statistics.fmean(changed[2:CHANGE])  # it was felt
    recovered, steady = statistics.median(changed[CHANGE + 5 :]), statistics.median(settled[5:])
    assert recovered < 1.15 * steady


def test_netstorms_own_schedule(tmp_path: Path) -> None:
    """Each directed link is drawn anew every 180 s: rounds go on, trees follow, and a star is slower."""
    own = "topology={use: netstorm9, workers: 1}"
    results = {
        kind: nine(tmp_path / kind, own, f"overlay={{tier1: star, tier2: {kind}}}", "training.iterations=24")
        for kind in ("netstorm", "star")
    }
    mine = results["netstorm"]
    assert begins(mine)[-1] > 180  # at least one draw has passed
    ways = [
        {(e["source"], e["target"], e["key"]) for e in mine.of_kind("transfer")
         if e["message"] == "merge" and e["round"] == round_}
        for round_ in (1, 23)
    ]  # fmt: skip
    assert ways[0] != ways[1]
    assert statistics.fmean(times(results["star"])) > 1.5 * statistics.fmean(times(mine))


def test_auxiliary_routes_carry_what_a_crowded_link_cannot(tmp_path: Path) -> None:
    settings = ("overlay.tier2.auxiliary=1", "training.iterations=3")
    result = nine(tmp_path, "overlay={tier1: star, tier2: netstorm}", *settings)
    for message in ("merge", "spread"):
        passed = [e for e in result.of_kind("transfer") if e["message"] == message and e["round"] == 1]
        chunks = {event["key"] for event in passed}
        assert len(passed) > 9 * len(chunks), "one transfer for each of nine members, and more for detours"
    assert {event["round"] for event in result.of_kind("round", "h9/worker0")} == {0, 1, 2}
