"""Parts of how workers without servers go on after a change: reports, parts of a round, graphs, states as messages."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch

from testbed.engine.handover import packed, unpacked
from testbed.engine.peers import FIRST_VALUES, NOTHING, EpochReports
from testbed.policy.gossip.graphs import GRAPHS, given, is_connected, joined_up
from testbed.policy.gossip.mixing import Metropolis, PushToAll, PushToOne
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
    state = {"0/value": torch.randn(2, 3), "0/updates": 7, "1/value": torch.ones(4), "draws": torch.tensor([1, 2]),
             "notes": "x", "1/empty": torch.zeros(0)}  # fmt: skip
    meta, parts = packed(state)
    assert len(parts) == 2, "one for each type"
    again = unpacked(meta, parts)
    assert again.keys() == state.keys()
    for name, content in state.items():
        equal = torch.equal(again[name], content) if isinstance(content, torch.Tensor) else again[name] == content
        assert equal, name
