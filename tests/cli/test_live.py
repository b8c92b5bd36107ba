"""What is shown while a run goes on, from the same progress events on a terminal, in a pipe and for machines."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from analysis.load import load_run
from testbed.cli import digest, live, look, state
from tests.results.fake_run import make_plan, make_run


class Clock:
    """Goes on by hand."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def status(node: str, **fields: Any) -> dict[str, Any]:
    return {"kind": "status", "t": 3.0, "node": node, "round": 0, "loss": None, "wan_up_bytes": 0, "wan_down_bytes": 0,
            "waiting_for": "", **fields}  # fmt: skip


def test_rows_add_up_a_data_centre() -> None:
    known = state.initial(make_plan())
    known.take({"kind": "round", "t": 2.0, "node": "tokyo/worker0", "round": 4, "loss": 0.5})
    known.take({"kind": "round", "t": 2.0, "node": "tokyo/worker1", "round": 3, "loss": 0.7})
    known.take(status("tokyo/server0", wan_up_bytes=1000, wan_down_bytes=10, waiting_for="round 5"))
    known.take(status("tokyo/worker1", round=3, waiting_for="value of key 2"))
    row = known.rows["tokyo"]
    assert (row.completed, row.loss) == (4, 0.6)
    assert row.waits == "value of key 2", "the slowest worker's wait comes first"
    assert known.wan_bytes() == (1000, 10)
    assert known.completed == 4


def test_a_status_before_the_first_round_is_not_a_round() -> None:
    known = state.initial(make_plan())
    known.take(status("tokyo/worker0"))
    assert known.completed == 0
    assert state.remaining_s(known, 10.0) is None


def test_estimate() -> None:
    known = state.initial(make_plan())
    for site in known.rows:
        known.take({"kind": "round", "node": f"{site}/worker0", "round": 1, "loss": 0.5})
    assert state.remaining_s(known, 10.0) == 30.0  # 2 of 8 in 10 s


def test_plain_lines_come_every_two_seconds_and_warnings_at_once() -> None:
    clock, out = Clock(), io.StringIO()
    with live.PlainLines(make_plan(), out, clock) as shown:
        for tenth in range(60):
            clock.now_s = 100 + tenth / 10
            shown.show(status("tokyo/worker0", round=tenth // 10, loss=0.5))
        shown.show({"kind": "warning", "message": "late"})
    lines = out.getvalue().splitlines()
    assert [line[:10] for line in lines] == ["[   2.0 s]", "[   4.0 s]", "[   5.9 s]"]
    assert "round 3/8  loss 0.5000" in lines[0]
    assert lines[2].endswith("warning: late")


def test_every_evaluation_is_a_line_like_the_originals() -> None:
    """Row 69 of GeoMX' observable behaviours."""
    out = io.StringIO()
    with live.PlainLines(make_plan(), out, Clock()) as shown:
        shown.show({"kind": "train", "t": 2.5, "workers": 4, "rounds": 8})
        score = {"kind": "evaluate", "t": 16.0, "round": 7, "epoch": 0, "accuracy": 0.1135, "snapshot_t": 14.845}
        shown.show(score)
        shown.show({**score, "accuracy": None})
    lines = out.getvalue().splitlines()
    assert len(lines) == 2
    assert lines[1].endswith("[Time 12.345][Epoch 0][Round 7] Test Acc 0.1135")


def test_json_lines_are_the_events_themselves() -> None:
    out = io.StringIO()
    event = {"kind": "evaluate", "accuracy": 0.9, "round": 3}
    with live.JsonLines(out) as shown:
        shown.show(event)
    assert json.loads(out.getvalue()) == event


def test_the_table_has_a_row_per_data_centre() -> None:
    known = state.initial(make_plan())
    known.take({"kind": "round", "node": "tokyo/worker0", "round": 4, "loss": 0.512345})
    known.take({"kind": "evaluate", "accuracy": 0.875})
    known.take(status("tokyo/server0", wan_up_bytes=1_500_000, waiting_for="round 5 from virginia/global0"))
    known.take({"kind": "status", "node": "", "t": 42.0, "rate": 12.5})
    out = io.StringIO()
    Console(file=out, width=120).print(live.site_table(known, "quickstart on simulate"))
    lines = out.getvalue().splitlines()
    assert "virtual time 42 s" in lines[0]
    (tokyo,) = [line for line in lines if "tokyo" in line]
    assert tokyo.split()[:6] == ["tokyo", "5", "0.5123", "0.8750", "1.5", "MB"]
    assert tokyo.rstrip().endswith("round 5 from virginia/global0")
    assert len([line for line in lines if line.strip().startswith(("virginia", "frankfurt"))]) == 2


def test_the_log_keeps_what_happened_but_not_every_status(tmp_path: Any) -> None:
    clock = Clock()
    with live.Logged(live.Display(), tmp_path / "log", clock) as shown:
        shown.show({"kind": "stage", "name": "network up", "links": 6})
        shown.show(status("tokyo/worker0"))
        clock.now_s += 1.5
        shown.show({"kind": "error", "message": "tokyo/worker0 died"})
    assert (tmp_path / "log").read_text().splitlines() == [
        "[    0.00 s] network up links=6", "[    1.50 s] error: tokyo/worker0 died",
    ]  # fmt: skip


def test_the_live_table_runs_on_a_terminal() -> None:
    shown = live.LiveTable(make_plan())
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    shown._live.console = console
    with shown:
        shown.show({"kind": "stage", "name": "training"})
        shown.show({"kind": "round", "node": "tokyo/worker0", "round": 7, "loss": 0.5})
        shown.show({"kind": "warning", "message": "a link is slow [sic]"})
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "a link is slow [sic]" in text
    assert "tokyo" in text
    assert "8/8" in text


def test_no_duration_is_a_power_of_ten() -> None:
    assert [look.seconds(value) for value in (0.25, 0.9997, 1.48, 99.97, 1234.5)] == [
        "250 ms", "1 s", "1.48 s", "100 s", "20.6 min",
    ]  # fmt: skip


def test_a_thousand_data_centres_leave_the_bar_on_the_screen() -> None:
    known = state.RunState(8, {f"dc{number}": state.NodeRow() for number in range(1000)})
    for number in range(1000):
        node = f"dc{number}/worker0"
        known.take({"kind": "round", "node": node, "round": 1 if number == 700 else 4, "loss": 0.5})
    table = live.site_table(known, "star")
    assert table.row_count == live.ROWS_SHOWN
    assert "16 of 1000 with the fewest rounds" in str(table.title)
    assert next(iter(table.columns[0].cells)) == "dc700"


def test_a_summary_of_many_data_centres_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest, "ROWS_SHOWN", 1)
    run = load_run(make_run(tmp_path / "run"))
    text = digest.as_text(digest.summary_of(run))
    assert "and 2 more, together" in text and "and 9 more nodes" in text
    assert text.count("virginia") == 2 and "tokyo" not in text
    traffic = next(line for line in text.splitlines() if "together" in line)
    assert run.result is not None
    up = sum(moved["up"] for site, moved in run.result["wan_payload_bytes"].items() if site != "virginia")
    assert look.size(up) in traffic


def test_a_quick_simulation_is_told_in_plain_digits() -> None:
    known = state.initial(make_plan())
    known.take({"kind": "status", "node": "", "t": 42.0, "rate": 12_345.6})
    assert "12346 times real time" in live.one_line(known)
