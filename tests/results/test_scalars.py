"""Rounds and scalars from events: workers that leave or come late, rates of links, logs that grow."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

from testbed.plan.model import to_json
from testbed.results.events import EventLog
from testbed.results.rounds import RoundCounter
from testbed.results.scalars import EventTail, Scalars
from tests.for_each import for_each
from tests.results.fake_run import make_plan

WORKERS = ("a/worker0", "b/worker0")


def event(kind: str, node: str = "a/worker0", t: float = 0.0, **fields: Any) -> dict[str, Any]:
    return {"kind": kind, "node": node, "t": t, **fields}


def counter() -> RoundCounter:
    made = RoundCounter(WORKERS)
    for node in WORKERS:
        assert list(made.take(event("start", node))) == []
    return made


def numbers(made: RoundCounter, *events: dict[str, Any]) -> list[int]:
    return [completed.number for each in events for completed in made.take(each)]


def test_a_round_is_complete_when_all_workers_have_completed_it() -> None:
    rounds = counter()
    assert numbers(rounds, event("round", "a/worker0", round=0, loss=1.0, samples=4, steps=2, t=1.0)) == []
    (completed,) = rounds.take(event("round", "b/worker0", round=0, loss=3.0, samples=4, steps=4, t=2.0))
    assert (completed.number, completed.t_s, completed.loss) == (0, 2.0, 2.0)
    assert (completed.steps, completed.samples) == (3.0, 8)


def test_a_lost_worker_is_not_waited_for_and_one_that_is_back_is() -> None:
    rounds = counter()
    gone = event("epoch", "a/scheduler", begins=False, targets="b/worker0")
    assert numbers(rounds, event("round", round=0, loss=1.0), gone, event("round", round=1, loss=1.0)) == [0, 1]
    assert numbers(rounds, event("start", "b/worker0"), event("round", round=2, loss=1.0)) == []
    assert numbers(rounds, event("round", "b/worker0", round=2, loss=1.0)) == [2]


def test_rounds_that_a_restart_repeats_are_told_once() -> None:
    rounds = counter()
    both = [event("round", node, round=number, loss=1.0) for number in range(2) for node in WORKERS]
    starts = [event("start", node) for node in WORKERS]
    later = [event("round", node, round=2, loss=1.0) for node in WORKERS]
    assert numbers(rounds, *both, *starts, *both, *later) == [0, 1, 2]


def test_rates_and_staleness_are_those_between_rounds() -> None:
    plan = json.loads(to_json(make_plan()))
    workers = [node["name"] for node in plan["nodes"] if node["role"] == "worker"]
    series = Scalars(plan)
    events = [event("start", node) for node in workers] + [event("train", t=1.0)]
    link = {"link": "virginia>tokyo"}
    events += [event("link", "monitor", t=1.0, bytes=0, **link), event("link", "monitor", t=2.0, bytes=250_000, **link)]
    events += [event("update", "virginia/global0", t=2.0, round=0, staleness=number) for number in (0, 3)]
    events += [event("round", node, t=2.5, round=0, loss=0.5) for node in workers]
    found = [scalar for each in events for scalar in series.take(each)]
    assert found == [
        ("training/loss", 0, 1.5, 0.5), ("staleness", 0, 1.5, 1.5), ("link_mbit_per_s/virginia>tokyo", 0, 1.0, 2.0),
    ]  # fmt: skip
    again = [event("round", node, t=3.0, round=1, loss=0.5) for node in workers]
    assert [scalar.tag for each in again for scalar in series.take(each)] == ["training/loss"], "no newer sample"


@for_each(("before", "t_s"), [({}, 4.0), ({"resumed_round": 3, "trained_s": 2.5}, 6.5)])
def test_times_count_from_the_first_start_of_training(before: dict[str, Any], t_s: float) -> None:
    """Not from that of a restart; and a run that goes on from another one's checkpoint has trained before."""
    series = Scalars(json.loads(to_json(make_plan())))
    score = event("evaluate", t=6.0, round=1, accuracy=0.5, snapshot_t=5.0)
    events = (event("train", t=1.0, **before), event("train", t=4.0, resumed_round=0, trained_s=0.5), score)
    assert [tuple(scalar) for each in events for scalar in series.take(each)] == [("test/accuracy", 1, t_s, 0.5)]


def test_a_tail_reads_whole_lines_in_the_order_of_their_times(tmp_path: Path) -> None:
    logs = {node: EventLog(tmp_path, node) for node in ("a/worker0", "b/worker0")}
    tail = EventTail(tmp_path, ("round",), lag_s=1.0)
    logs["a/worker0"].write("round", 1.0, round=0)
    logs["a/worker0"].write("round", 3.0, round=1)
    logs["a/worker0"].write("wait", 3.0, waiting_for='"kind":"round"')
    logs["a/worker0"].flush()
    assert [(each["node"], each["round"]) for each in tail.poll()] == [("a/worker0", 0)]
    logs["b/worker0"].write("round", 2.5, round=0)
    logs["b/worker0"].flush()
    deflate = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    with open(tmp_path / "b.worker0.0001.jsonl.gz", "ab", buffering=0) as file:  # of a second process of that node
        lines = b'{"t":4.0,"kind":"round","node":"b/worker0","round":1}\nnot json "kind":"round"\n'
        file.write(deflate.compress(lines[:20]) + deflate.flush(zlib.Z_SYNC_FLUSH))
        assert tail.poll() == [] and tail.poll() == []
        file.write(deflate.compress(lines[20:]) + deflate.flush(zlib.Z_SYNC_FLUSH))
    assert [(each["node"], each["t"]) for each in tail.poll()] == [("b/worker0", 2.5), ("a/worker0", 3.0)]
    assert [each["t"] for each in tail.rest()] == [4.0]
