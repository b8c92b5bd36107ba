"""Events to tables, rounds and scalars: columns, units, torn and damaged lines, workers that leave or come late."""

from __future__ import annotations

import gzip
import json
import math
import zlib
from pathlib import Path
from typing import Any

import pytest

from testbed.plan.model import to_json
from testbed.results import atomic, tables
from testbed.results import events as event_log
from testbed.results.events import EventLog, PartReader
from testbed.results.rounds import RoundCounter
from testbed.results.scalars import EventTail, Scalars
from tests.for_each import for_each
from tests.results.fake_run import make_plan, write_events


def part_of(events: Path, node: str) -> Path:
    return events / f"{node.replace('/', '.')}.0000.jsonl.gz"


def text_of(part: Path) -> str:
    return PartReader(part).lines().decode()


def write_part(part: Path, lines: str) -> None:
    """As a process that was killed leaves it: without an end."""
    part.parent.mkdir(exist_ok=True)
    part.write_bytes(gzip.compress(lines.encode())[:-8])


@pytest.fixture
def events(tmp_path: Path) -> Path:
    write_events(make_plan(), tmp_path / "events")
    return tmp_path / "events"


def test_parquet_and_events_give_the_same_frames(events: Path) -> None:
    from_events = tables.read(events.parent)
    tables.write(events.parent / "tables", tables.build(events))
    from_parquet = tables.read(events.parent)
    for name, frame in from_events.items():
        assert frame.equals(from_parquet[name]), name


def test_the_names_of_all_tables_are_on_disk_after_the_last_one(events: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = events.parent / "tables"
    synced: list[tuple[bool, int]] = []  # whether it is the directory, and how many tables it has

    def sync(path: Path) -> None:
        synced.append((path == directory, len(list(directory.glob("*.parquet")))))

    monkeypatch.setattr(atomic, "sync", sync)
    built = tables.build(events)
    tables.write(directory, built)
    assert [is_directory for is_directory, _ in synced] == [*[False] * len(built), True]
    assert synced[-1] == (True, len(built))


def test_events_without_time_are_left_out_and_those_without_node_are_of_their_writer(events: Path) -> None:
    part = part_of(events, "tokyo/worker0")
    lines = [json.loads(line) for line in text_of(part).splitlines()]
    rounds = [line for line in lines if line["kind"] == "round"]
    del rounds[0]["t"], rounds[1]["node"]
    before = tables.read_part(part)["rounds"]
    write_part(part, "".join(json.dumps(line) + "\n" for line in lines))
    built = tables.read(events.parent)
    assert tables.read_part(part)["rounds"] == before.slice(1)
    warnings = built["warnings"]["message"].tolist()
    assert warnings == ["tokyo.worker0.0000.jsonl.gz: 1 damaged line(s) were left out of the tables"]


def test_damage_that_is_no_utf8_ends_no_reader(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    line = b'{"t":1.0,"kind":"warning","node":"a/worker0","message":"bad \xff"}\n'
    (tmp_path / "events" / "a.worker0.0000.jsonl.gz").write_bytes(gzip.compress(line))
    assert tables.read(tmp_path)["warnings"]["message"].tolist() == ["bad \ufffd"]
    assert [event["message"] for event in event_log.read(tmp_path / "events")] == ["bad \ufffd"]


def test_a_file_that_ends_anywhere_has_all_lines_until_there_and_damage_is_said(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events", "a/worker0")
    for number in range(20_000):
        log.write("round", number * 0.1, t0=0.0, round=number, loss=math.sin(number))
    log.flush()
    part = part_of(tmp_path / "events", "a/worker0")
    whole = part.read_bytes()
    counts = []
    for share in (0.2, 0.6, 1.0):
        part.write_bytes(whole[: int(share * len(whole))])
        built = tables.read(tmp_path)
        assert built["rounds"]["round"].tolist() == list(range(len(built["rounds"])))
        assert built["warnings"].empty, "that a file has no end is no damage: its process was killed"
        counts.append(len(built["rounds"]))
    assert 2000 < counts[0] < counts[1] < counts[2] == 20_000
    part.write_bytes(whole[: len(whole) // 2] + b"damage" + whole[len(whole) // 2 + 6 :])
    built = tables.read(tmp_path)
    assert 2000 < len(built["rounds"]) < 20_000
    assert built["warnings"]["message"].tolist()[0].endswith("were left out of the tables")


def test_parts_follow_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "PART_BYTES", 20_000)
    monkeypatch.setattr(event_log, "_BUFFER_BYTES", 5_000)
    logs = [EventLog(tmp_path / "events", name) for name in ("a/worker1", "a/worker10")]
    for number in range(3000):
        logs[number % 2].write("round", number * 0.1, t0=0.0, round=number, loss=1.0)
    for log in logs:
        log.close()
    names = [path.name for path in event_log.parts(tmp_path / "events")]
    assert len(names) > 8 and names[1] == "a.worker1.0001.jsonl.gz"
    rounds = tables.read(tmp_path)["rounds"]
    assert rounds["round"].tolist() == list(range(3000))
    assert rounds["node"].tolist() == ["a/worker1", "a/worker10"] * 1500


def test_a_diverged_loss_is_read(tmp_path: Path) -> None:
    losses = ("0.5", "Infinity", "NaN", "null")
    lines = [f'{{"t": 2.0, "kind": "round", "t0": 1.0, "round": 0, "loss": {loss}}}\n' for loss in losses]
    write_part(part_of(tmp_path / "events", "a/worker0"), "".join(lines))
    read = tables.read(tmp_path)["rounds"]["loss"].tolist()
    assert read[:2] == [0.5, math.inf]
    assert [math.isnan(loss) for loss in read] == [False, False, True, True]


def test_link_rates_come_from_counters(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events", "monitor")
    for t, sent in ((0.0, 0), (0.5, 1_000_000), (1.5, 1_500_000), (2.0, 10)):
        for name, factor in (("a>b", 1), ("b>a", 2)):
            log.write(
                "link", t, link=name, configured_bps=20e6, bytes=sent * factor, dropped_packets=0, backlog_bytes=0
            )
    log.close()
    links = tables.read(tmp_path)["links"]
    rates = links[links["link"] == "a>b"]["achieved_bps"].tolist()
    assert rates[1:3] == [16e6, 4e6]
    assert math.isnan(rates[0])
    assert math.isnan(rates[3])  # counters went back
    assert links[links["link"] == "b>a"]["achieved_bps"].tolist()[1] == 32e6


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
        ("training/loss", 0, 1.5, 0.5),
        ("staleness", 0, 1.5, 1.5),
        ("link_mbit_per_s/virginia>tokyo", 0, 1.0, 2.0),
    ]
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
