"""Parts of how workers without servers go on after a change: reports, parts of a round, graphs, states as messages."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from unittest.mock import Mock

import pytest
import torch

from testbed.engine.peers import FIRST_VALUES, NOTHING, EpochMail, EpochReports, FirstRounds, Peers
from testbed.engine.state_mail import packed, unpacked
from testbed.messages import Message, MessageKind
from testbed.plan.build import build_plan
from testbed.policy.gossip.graphs import GRAPHS, given, is_connected, joined_up
from testbed.policy.gossip.mixing import Metropolis, PushToAll, PushToOne
from testbed.scenario.load import load
from tests.engine.runs import THREE_SITES
from tests.for_each import for_each

LAST = 9


def reports(epoch: int, **progress: int) -> EpochReports:
    made = EpochReports()
    for name, each in progress.items():
        made.report(name, {"name": f"agree/{epoch}", "progress": each, "last": LAST - each % 3})
    return made


def test_the_furthest_decides_and_the_first_of_them_gives_its_state() -> None:
    decision = reports(3, a=4, b=5, c=5).decide(3, ["a", "b", "c"])
    assert decision == {"name": "agree/3", "progress": 5, "holder": "b", "last": LAST - 2}


def test_reports_of_an_earlier_epoch_decide_nothing() -> None:
    made = reports(3, a=4, b=5)
    assert made.decide(4, ["a"]) is None, "b is lost since: a has to report again"
    made.report("a", {"name": "agree/4", "progress": 4, "last": LAST})
    made.report("b", {"name": "agree/3", "progress": 7, "last": LAST})  # its process has ended
    assert made.decide(4, ["a"]) == {"name": "agree/4", "progress": 4, "holder": "a", "last": LAST}
    assert made.decide(4, ["a"]) is None, "they have been told"


def test_without_values_the_first_has_them() -> None:
    decision = reports(0, a=NOTHING, b=NOTHING).decide(0, ["a", "b"])
    assert decision is not None and (decision["progress"], decision["holder"]) == (FIRST_VALUES, "a")


class CountedNames(list[str]):
    """Names, and how often somebody has gone through them."""

    walks = 0

    def __iter__(self) -> Iterator[str]:
        self.walks += 1
        return super().__iter__()


def test_with_thousands_of_nodes_nobody_goes_through_all_of_them_at_every_report() -> None:
    names = CountedNames(f"worker{number}" for number in range(100))
    made = EpochReports()
    for name in list(names)[:-1]:
        made.report(name, {"name": "agree/1", "progress": 4, "last": LAST})
        assert made.decide(1, names) is None
    assert names.walks == 1, "by this test"
    made.report(names[-1], {"name": "agree/1", "progress": 4, "last": LAST})
    assert made.decide(1, names) is not None


HUB, EAST, EAST1, WEST = "hub/worker0", "east/worker0", "east/worker1", "west/worker0"
HFA = ("sync={kind: hfa, k1: 1, k2: 3}", "optimizer={kind: sgd, at: worker}")


def first_rounds(*overrides: str) -> FirstRounds:
    return FirstRounds(build_plan(load(THREE_SITES, overrides), "simulate"), {}, {})


def test_a_worker_joins_with_the_round_that_nobody_beside_it_has_begun() -> None:
    rounds, begun = first_rounds(*HFA), {HUB: 7, EAST: 4, EAST1: NOTHING, WEST: 5}
    assert rounds.give(begun, {EAST1: 1}, {}) == {EAST1: 5}
    assert rounds.give({**begun, EAST: 6}, {EAST1: 1}, {}) == {EAST1: 5}, "it may have begun since"
    assert rounds.give({**begun, EAST: 6}, {EAST1: 3}, {}) == {EAST1: 7}, "another process"


def test_a_data_centre_joins_after_the_last_round_that_crosses_the_wan() -> None:
    begun = {HUB: 7, EAST: NOTHING, EAST1: NOTHING}
    assert first_rounds(*HFA).give(begun, {EAST: 1, EAST1: 2}, {}) == {EAST: 6, EAST1: 6}


def test_a_data_centre_goes_on_where_its_local_server_is() -> None:
    """Its last worker was lost when another one had joined: the server stays, with what it has summed."""
    begun = {HUB: 4, WEST: 4, EAST: NOTHING}
    summed = {"hub/global0": 2, "east/server0": 4}
    assert first_rounds(*HFA).give(begun, {EAST: 1}, summed) == {EAST: 5}
    assert first_rounds(*HFA).give(begun, {EAST: 1}, {**summed, "east/server0": NOTHING}) == {EAST: 3}
    others = {"hub/global0": 2, "hub/server0": 4, "east/server0": NOTHING}
    assert first_rounds(*HFA).give(begun, {EAST: 1}, others) == {EAST: 3}, "those of other data centres do not matter"


def test_what_is_summed_is_not_begun_anew_by_those_who_have_all_joined() -> None:
    assert first_rounds().give({HUB: NOTHING}, {HUB: 4}, {"hub/global0": 6}) == {HUB: 7}


def test_where_some_may_be_ahead_who_joins_begins_with_the_slowest() -> None:
    rounds = first_rounds("paradigm=ps", "sync={kind: ssp, staleness: 3}")
    assert rounds.give({HUB: 4, EAST: 1, WEST: NOTHING}, {WEST: 1}, {}) == {WEST: 2}


@for_each("together", [True, False])
def test_messages_of_an_earlier_epoch_and_of_lost_processes_are_dropped(together: bool) -> None:
    arrived: list[int] = []
    inbox, membership = Mock(), Mock(absent=[], joined={}, newest_epoch=0, joined_late=False, first={})
    membership.on_ready, membership.on_members_lost = [], []
    plan = build_plan(load(THREE_SITES, ("recovery={on_failure: continue}",)), "simulate")
    peers = Peers(Mock(node=HUB), inbox, membership, plan)
    mail = EpochMail(Mock(), peers, together=together)

    def push(sender: str, round_: int, epoch: int) -> None:
        meta = {"epoch": epoch} if epoch else {}
        mail.take(Message(MessageKind.PUSH, 0, round_, meta, sender=sender), lambda got: arrived.append(got.round))

    push(EAST, 0, 0)
    assert arrived == [], "who takes part is not known yet"
    membership.on_ready[0]()
    assert arrived == [0]
    membership.newest_epoch = 1
    membership.on_members_lost[0]([WEST])
    push(WEST, 1, 0)
    push(EAST, 2, 1)
    assert arrived == [0], "it has yet to agree on epoch 1"
    membership.on_agreed(Message(MessageKind.RELEASE, meta={"name": "agree/1", "progress": 2, "holder": "", "last": 9}))
    assert arrived == [0, 2]
    push(EAST, 1, 0)
    assert arrived == ([0, 2] if together else [0, 2, 1]), "a round that is made again has ended"


@for_each("kind", GRAPHS)
def test_weights_add_up_without_any_two_of_six(kind: str) -> None:
    for lost in combinations(range(6), 2):
        mixing = Metropolis(GRAPHS[kind](6))
        for rank in set(range(6)) - set(lost):
            part = mixing.part(0, rank).without(lost, pushes=False)
            assert part.keep + sum(weight for _, weight in part.receives) == pytest.approx(1)
            assert part.keep >= mixing.part(0, rank).keep - 1e-12 and not set(part.sends) & set(lost)


@for_each("mixing", [PushToAll(GRAPHS["ring"](6)), PushToOne([range(6)])])
def test_what_is_not_pushed_is_kept(mixing: PushToAll | PushToOne) -> None:
    for rank in (1, 2, 4, 5):
        whole, part = mixing.part(0, rank), mixing.part(0, rank).without((0, 3), pushes=True)
        share = (1 - whole.keep) / len(whole.sends)
        assert part.keep + share * len(part.sends) == pytest.approx(1)


def test_what_is_left_of_a_graph_is_joined_up() -> None:
    apart = given(5, [(0, 1), (2, 3)])
    assert not is_connected(apart) and is_connected(joined_up(apart))
    assert joined_up(apart) == ((1, 2), (0,), (0, 3, 4), (2,), (2,))
    assert joined_up(GRAPHS["ring"](5)) == GRAPHS["ring"](5)


def test_a_state_survives_its_message() -> None:
    state = {
        "0/value": torch.randn(2, 3),
        "0/updates": 7,
        "1/value": torch.ones(4),
        "draws": torch.tensor([1, 2]),
        "notes": "x",
        "1/empty": torch.zeros(0),
    }
    meta, parts = packed(state)
    assert len(parts) == 2, "one for each type"
    again = unpacked(meta, parts)
    assert again.keys() == state.keys()
    for name, content in state.items():
        equal = torch.equal(again[name], content) if isinstance(content, torch.Tensor) else again[name] == content
        assert equal, name
