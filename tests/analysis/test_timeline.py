"""The exported trace obeys the rules of the trace-event format, and says what the run's tables say."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from analysis.export import FORMATS
from analysis.load import StoredRun, load_run
from analysis.timeline import trace
from tests.results.fake_run import make_run

Event = dict[str, Any]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[StoredRun]:
    folder = tmp_path_factory.mktemp("runs")
    return [load_run(make_run(folder / "emulated", back_end="emulate")),
            load_run(make_run(folder / "simulated", back_end="simulate"))]  # fmt: skip


@pytest.fixture(scope="module")
def events(runs: list[StoredRun]) -> list[Event]:
    return json.loads(json.dumps(trace(runs), allow_nan=False))["traceEvents"]


def of_phase(events: list[Event], phase: str) -> list[Event]:
    return [event for event in events if event["ph"] == phase]


def test_every_event_has_what_its_phase_needs(events: list[Event]) -> None:
    assert {event["ph"] for event in events} == {"X", "M", "C", "s", "f"}
    for event in events:
        assert isinstance(event["name"], str) and event["name"]
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int)
        if event["ph"] != "M":
            assert event["ts"] >= 0
    assert all(event["dur"] >= 0 for event in of_phase(events, "X"))
    assert all(isinstance(value, int | float) for event in of_phase(events, "C") for value in event["args"].values())


def test_slices_of_a_thread_nest(events: list[Event]) -> None:
    threads = defaultdict(list)
    for event in of_phase(events, "X"):
        threads[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for slices in threads.values():
        open_until: list[float] = []
        for begin, end in sorted(slices, key=lambda each: (each[0], -each[1])):
            while open_until and open_until[-1] <= begin + 1e-3:
                open_until.pop()
            assert not open_until or end <= open_until[-1] + 1e-3
            open_until.append(end)


def test_arrows_come_in_pairs_and_bind_to_slices(events: list[Event]) -> None:
    begins = {event["id"]: event for event in of_phase(events, "s")}
    ends = {event["id"]: event for event in of_phase(events, "f")}
    assert len(begins) == len(of_phase(events, "s")) > 0
    assert begins.keys() == ends.keys()
    spans = defaultdict(list)
    for event in of_phase(events, "X"):
        spans[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for number, begin in begins.items():
        end = ends[number]
        assert (begin["name"], begin["cat"]) == (end["name"], end["cat"])
        assert begin["ts"] < end["ts"] and end["bp"] == "e"
        for event in (begin, end):
            assert any(a - 1e-3 <= event["ts"] < b for a, b in spans[event["pid"], event["tid"]])


def test_slices_are_those_of_the_tables(runs: list[StoredRun], events: list[Event]) -> None:
    pushes = [event for event in of_phase(events, "X") if event["name"].startswith("push") and event["cat"] == "send"]
    assert len(pushes) == sum((run.tables["transfers"]["message"] == "push").sum() for run in runs)
    steps = [event for event in of_phase(events, "X") if event["name"] == "step"]
    expected = sum(run.tables["computes"].query("work == 'step'")["duration_s"].sum() for run in runs)
    assert sum(event["dur"] for event in steps) / 1e6 == pytest.approx(expected, abs=1e-4)


def test_csv_has_every_table_and_explains_its_columns(runs: list[StoredRun], tmp_path: Path) -> None:
    import pandas as pd

    paths = FORMATS["csv"](runs[:1], tmp_path)
    assert {path.name for path in paths} >= {"columns.csv", "rounds.csv", "transfers.csv"}
    read = pd.read_csv(tmp_path / "emulated" / "rounds.csv")
    assert read["duration_s"].tolist() == pytest.approx(runs[0].tables["rounds"]["duration_s"].tolist())
    about = pd.read_csv(tmp_path / "columns.csv").set_index(["table", "column"])
    assert about.loc[("transfers", "payload_bytes"), "unit"] == "B"
