"""P3 on real sockets across a slow emulated link: the first layer's slices pass those that were sent before them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.runs import Finished, run_scenario
from tests.end_to_end.test_three_worlds import skip_unless_possible
from tests.engine.runs import THREE_SITES

# west's way up takes about a second for a model, its way down little
SLOW = (
    "topology.links[1].rate=20 Mbit/s",
    "topology.links[1].reverse={rate: 2 Mbit/s}",
    "training.rounds=5",
    "training.evaluate_every=5",
    "topology.links[2].delay=100 ms",
    "transport.unsent_limit=16 KiB",
    "training.model=cnn",
)


def places_of_the_first_layer(run: Finished) -> list[float]:
    """Where among west's pushes the first layer's first slice arrived, from 0 to 1, by round from the second on."""
    arrived = [
        (event["t"], event["round"], event["key"])
        for event in run.of_kind("transfer")
        if (event["node"], event["source"], event["message"]) == ("hub/global0", "west/server0", "push")
    ]
    rounds = [[key for _, round_, key in sorted(arrived) if round_ == number] for number in range(1, 5)]
    return [keys.index(0) / len(keys) for keys in rounds]


@pytest.mark.wallclock  # 34 s; a busy machine makes slices more slowly than the link takes them: none waits
@pytest.mark.emulation
def test_urgent_slices_overtake_on_a_real_wan_link(tmp_path: Path) -> None:
    """Row 62."""
    skip_unless_possible("emulate")
    places = {}
    for order in ("fifo", "p3"):
        chosen = f"order={{kind: {order}, slice: 4 KB, overlap: layers}}"
        run = run_scenario(tmp_path / order, "emulate", chosen, *SLOW, scenario=THREE_SITES)
        assert run.outcome.status == "done", run.outcome.message
        places[order] = sum(places_of_the_first_layer(run)) / 4
    assert places["fifo"] > 0.5  # the first layer's gradient is made last
    assert places["p3"] < 0.5
