"""Contributions that are applied one by one travel along trees by themselves, and none waits for another's."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from testbed.engine.overlay.group import InOrder
from testbed.messages import Message, MessageKind
from tests.engine.runs import Simulated, run
from tests.pairs import in_turn

SMALL = (
    "training.model={kind: mlp, hidden: 16}",
    "training.rounds=6",
    "training.evaluate_every=3",
    "optimizer={kind: sgd, learning_rate: 0.02}",
    "data_centers[*].workers=3",
    "data_centers[west].device.speed=0.5",
)
TREES = (
    "{kind: tree, degree: 1, merge: exact}",
    "{kind: netstorm, merge: exact, chunk: 1000 bytes, change: 0}",
)


def updates(result: Simulated) -> Counter[tuple[int, int, str]]:
    """Return how often each server applied a key of a round of each child."""
    return Counter(
        (event["key"], event["round"], contributor)
        for event in result.of_kind("update")
        for contributor in event["contributors"]
    )


@pytest.mark.sample(1)  # of 8, which take 8 s
@pytest.mark.parametrize("overlay", TREES, ids=["tree", "netstorm"])
@pytest.mark.parametrize(("sync", "paradigm"), in_turn(["mixedsync", "tap", "ssp"], ["ps", "hips"]))  # 1 s each
def test_every_contribution_is_applied_once(paradigm: str, sync: str, overlay: str, tmp_path: Path) -> None:
    """Of every round that a worker has made, each key is applied once, whatever way it took."""
    texts = (*SMALL, f"sync={sync}", f"paradigm={paradigm}")
    tree = run(tmp_path / "tree", *texts, f"overlay={overlay}")
    applied = updates(tree)
    keys = {key for key, _, _ in applied}
    made = Counter[str]()
    sums_inside = (paradigm, sync) == ("hips", "mixedsync")  # the workers of a data centre contribute together
    for event in tree.of_kind("round"):
        worker = event["node"]
        if sums_inside and not worker.endswith("worker0"):
            continue
        made[worker if paradigm == "ps" else f"{worker.partition('/')[0]}/server0"] += len(keys)
    assert set(applied.values()) == {1}
    assert Counter(contributor for _, _, contributor in applied) == made
    assert sum(made.values()) == 6 * (3 if sums_inside else 9) * len(keys), "the workers share six rounds each"
    assert all(len(event["contributors"]) == 1 for event in tree.of_kind("update"))
    assert tree.hashes() == run(tmp_path / "again", *texts, f"overlay={overlay}").hashes()
    relayed = [event for event in tree.of_kind("transfer") if event["message"] in ("merge", "spread")]
    assert {event["source"] for event in relayed} > {"hub/global0"}


def test_no_member_waits_for_a_slow_one_below_it(tmp_path: Path) -> None:
    """In a chain below the server, hub's pushes go on while west's worker is ten times slower."""
    texts = (
        *SMALL,
        "sync=tap",
        "paradigm=ps",
        "data_centers[west].device.speed=0.1",
        "data_centers[*].workers=1",
        "training.rounds=20",
    )
    result = run(tmp_path / "run", *texts, f"overlay={TREES[0]}")
    assert result.round_s("hub/worker0") < 0.2
    assert result.round_s("west/worker0", skip=0) > 1


def test_a_tree_of_fast_links_goes_around_a_slow_one(tmp_path: Path) -> None:
    texts = (
        *SMALL,
        "sync=tap",
        "paradigm=ps",
        "data_centers[*].workers=1",
        "training.model.hidden=512",
        "device.step_time=10 ms",
        "links[0].rate=1 Mbit/s",
        "training.rounds=20",
    )
    star = run(tmp_path / "star", *texts)
    routed = run(tmp_path / "routed", *texts, "overlay={kind: netstorm, merge: exact}")
    assert len(routed.of_kind("round", "east/worker0")) > 2 * len(star.of_kind("round", "east/worker0"))


def test_messages_that_overtook_wait_for_their_turn() -> None:
    in_order = InOrder()
    messages = [Message(MessageKind.MERGE, 7, 0, {"number": in_order.number(7, 1)}) for _ in range(4)]
    taken = [list(in_order.arrived(messages[number], 1)) for number in (1, 0, 3, 2)]
    assert taken == [[], messages[:2], [], messages[2:]]
