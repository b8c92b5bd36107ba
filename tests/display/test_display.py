"""What is shown while a run goes on, from the same progress events on a terminal, in a pipe and for machines."""

import errno
import html
import io
import json
import os
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from analysis.load import load_run
from analysis.sweeps.points import cases_of, points_of
from testbed import numbers
from testbed.display import look, progress, state, summary
from testbed.display.notebook import html_of
from testbed.display.remaining import Remaining
from testbed.plan.build import build_plan
from testbed.scenario.load import load
from testbed.target import ACCURACY, Target
from tests.for_each import for_each
from tests.results.fake_run import SITES, make_plan, make_run


class Clock:
    """Goes on by hand."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def status(node: str, **fields: Any) -> dict[str, Any]:
    return {
        "kind": "status",
        "t": 3.0,
        "node": node,
        "round": 0,
        "loss": None,
        "wan_up_bytes": 0,
        "wan_down_bytes": 0,
        "waiting_for": "",
        **fields,
    }


def test_rows_add_up_a_data_centre() -> None:
    known = state.initial(make_plan())
    known.take({"kind": "round", "t": 2.0, "node": "tokyo/worker0", "round": 4, "loss": 0.5})
    known.take({"kind": "round", "t": 2.0, "node": "tokyo/worker1", "round": 3, "loss": 0.7})
    known.take(status("tokyo/server0", wan_up_bytes=1000, wan_down_bytes=10, waiting_for="round 5"))
    known.take(status("tokyo/worker1", round=3, waiting_for="value of key 2"))
    row = known.rows["tokyo"]
    assert (row.completed, row.loss) == (4, 0.6)
    assert row.waits == "value of key 2", "the slowest worker's wait comes first"
    assert known.wan_bytes() == 1000
    assert known.completed == 4


def test_steps_and_samples_are_those_of_each_worker() -> None:
    known = state.initial(make_plan())
    for steps in (4, 2):
        known.take({"kind": "round", "node": "tokyo/worker0", "round": 0, "steps": steps, "samples": 32 * steps})
        known.take({"kind": "round", "node": "virginia/worker1", "round": 0, "samples": 32})
    assert known.work() == ((2, 6), (64, 192))
    assert "  2–6 steps, 64–192 samples per worker  " in progress.one_line(known)
    assert known.rows["tokyo"].ends() == ((6, 6), (192, 192))


def test_samples_of_a_pipeline_are_those_of_a_replica_which_its_last_stage_knows() -> None:
    known = state.initial(build_plan(load("paradigms/pipeline"), "simulate"))
    for number in range(2):
        known.take({"kind": "round", "node": f"virginia/worker{number}", "round": 0, "steps": 1, "samples": 0})
        known.take({"kind": "round", "node": f"tokyo/worker{number}", "round": 0, "steps": 1, "samples": 32})
    assert known.work() == ((1, 1), (32, 32))
    assert "  1 step, 32 samples per replica  " in progress.one_line(known)


def test_a_node_that_is_gone_holds_nobody_up() -> None:
    known = state.initial(make_plan())
    for node in ("tokyo/worker0", "tokyo/worker1", "virginia/worker0"):
        known.take({"kind": "round", "node": node, "round": 1, "loss": 9.0 if node == "tokyo/worker1" else 0.5})
    known.take(status("tokyo/worker1", round=1, wan_up_bytes=7, waiting_for="round 2"))
    gone = {"kind": "epoch", "number": 1, "targets": "tokyo/worker1, frankfurt/worker0", "begins": False}
    known.take(gone | {"message": "no sign of life"})
    for node in ("tokyo/worker0", "virginia/worker0"):
        known.take({"kind": "round", "node": node, "round": 4, "loss": 0.5})
    late = status("tokyo/worker1", round=1, loss=9.0, wan_up_bytes=9, waiting_for="round 2")
    known.take(late)
    assert (known.completed, known.loss, known.rows["tokyo"].waits) == (5, 0.5, "")
    assert known.wan_bytes() == 9, "what it has sent was sent"
    known.take(gone | {"number": 2, "begins": True})
    known.take(late | {"round": 5})
    assert (known.completed, known.rows["tokyo"].waits) == (5, "round 2")
    known.take(gone | {"number": 3, "targets": "virginia/worker0"})
    known.take({"kind": "round", "node": "tokyo/worker0", "round": 7, "loss": 0.5})
    assert known.completed == 6, "a data centre without nodes does not count"


class Closed(progress.Display):
    """A display whose output is a pipe without a reader, the file of a full disk, or a terminal that is gone."""

    def __init__(self, number: int) -> None:
        self._error = OSError(number, os.strerror(number))

    def __exit__(self, *error: object) -> None:
        raise self._error

    def show(self, event: progress.Event) -> None:
        raise self._error


@for_each("problem", [errno.EPIPE, errno.ENOSPC, errno.EIO])
@for_each("events", [0, 2])
def test_a_run_goes_on_without_a_display_that_nobody_reads(tmp_path: Path, events: int, problem: int) -> None:
    with progress.Logged(Closed(problem), tmp_path / "log", make_plan()) as shown:
        for number in range(events):
            shown.show({"kind": "stage", "name": f"stage {number}"})
    assert [line[-1] for line in (tmp_path / "log").read_text().splitlines()] == ["0", "1"][:events]


def test_a_pipe_gets_a_line_per_tenth_at_most_one_in_ten_seconds_and_warnings_at_once() -> None:
    clock, out = Clock(), io.StringIO()
    with progress.PlainLines(make_plan(rounds=100), out, clock) as shown:
        shown.show({"kind": "train", "t": 1.0, "workers": 6, "rounds": 100})
        for round_ in range(50):  # 5 s a round: a tenth takes 50 s
            clock.now_s += 5
            _round(shown, round_, t=1.0 + 5 * (round_ + 1))
        for round_ in range(50, 100):  # 0.5 s a round: a tenth takes 5 s
            clock.now_s += 0.5
            _round(shown, round_, t=251.0 + 0.5 * (round_ - 49))
            if round_ == 60:
                shown.show({"kind": "warning", "message": "late"})
    lines = out.getvalue().splitlines()
    assert [line[:17] for line in lines[1:6]] == [f"[wall {at:8.2f} s]" for at in (51, 101, 151, 201, 251)]
    assert "10/100 rounds  10 steps, 320 samples per worker  loss 0.5  " in lines[1]
    assert lines[1].endswith("at most 450 s left")
    rest = [line for line in lines[6:] if "rounds" in line]
    assert [float(line[6:14]) for line in rest] == [261, 271, 276], "and one at the end"
    assert rest[-1].endswith("over the WAN"), "no time is left at the end, so none is told"
    assert [line[:17] for line in lines if line.endswith("warning: late")] == ["[wall   256.50 s]"]


def _round(shown: progress.Display, round_: int, t: float) -> None:
    for site in SITES:
        node = f"{site}/worker0"
        shown.show({"kind": "round", "t": t, "node": node, "round": round_, "loss": 0.5, "steps": 1, "samples": 32})


@for_each("earlier", [0, 50])
def test_rounds_of_an_earlier_run_took_no_time(earlier: int) -> None:
    """A run that goes on from a checkpoint begins with a high number."""
    clock, out = Clock(), io.StringIO()
    with progress.PlainLines(make_plan(rounds=100), out, clock) as shown:
        shown.show({"kind": "train", "t": 1.0, "workers": 6, "rounds": 100})
        for round_ in range(earlier, earlier + 10):
            clock.now_s += 5
            _round(shown, round_, t=1.0)
    assert out.getvalue().splitlines()[-1].endswith(f"at most {numbers.seconds(5.0 * (90 - earlier))} left")


RECORDED = Path(__file__).parent / "recorded"


@for_each("name", [path.stem for path in sorted(RECORDED.glob("*.csv"))])
def test_the_remaining_time_is_stable_and_near_the_truth(name: str) -> None:
    """On recorded runs: from a tenth of the run on, the estimated end moves little from one round to the next."""
    rows = [line.split(",") for line in (RECORDED / f"{name}.csv").read_text().splitlines()[1:]]
    times = [(int(completed), float(time_s)) for completed, time_s in rows]
    total, end_s = times[-1]
    estimate = Remaining(total)
    estimate.begin(times[0][1])
    ends = []
    for completed, time_s in times[1:]:
        estimate.take(completed, time_s)
        left_s = estimate.at(time_s)
        assert left_s is not None
        if completed * 10 >= total:
            ends.append((time_s, time_s + left_s))
    length_s = end_s - times[0][1]
    moved = [abs(after - before) / length_s for (_, before), (_, after) in pairwise(ends)]
    assert max(moved) < 0.04 and sum(moved) / len(moved) < 0.01
    assert max(abs(estimated - end_s) / length_s for at_s, estimated in ends) < 0.25
    assert abs(ends[-1][1] - end_s) < 1e-9


def test_every_evaluation_is_a_line_like_the_originals(tmp_path: Path) -> None:
    """Row 69 of GeoMX' observable behaviours; on the clock of all lines of the log."""
    with progress.Logged(progress.Display(), tmp_path / "log", make_plan(back_end="simulate")) as shown:
        shown.show({"kind": "train", "t": 2.5, "workers": 4, "rounds": 8})
        score = {"kind": "evaluate", "t": 16.0, "round": 7, "epoch": 0, "accuracy": 0.1135, "snapshot_t": 14.845}
        shown.show(score)
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines[1] == "[virtual    16.00 s] [Time 14.845][Epoch 0][Round 7] Test Acc 0.1135"


def test_a_number_that_json_does_not_have_is_null() -> None:
    out = io.StringIO()
    with progress.JsonLines(out) as shown:
        shown.show({"kind": "round", "loss": float("nan"), "waits": [("a", float("inf")), {"b": -float("inf")}]})

    def refuse(text: str) -> None:
        raise AssertionError(f"{text} is no JSON")

    told = json.loads(out.getvalue(), parse_constant=refuse)
    assert told == {"kind": "round", "loss": None, "waits": [["a", None], {"b": None}]}


def test_the_table_has_a_row_per_data_centre() -> None:
    known = state.initial(make_plan())
    known.take({"kind": "round", "node": "tokyo/worker0", "round": 4, "loss": 0.512345})
    known.take({"kind": "evaluate", "accuracy": 0.875})
    known.take(status("tokyo/server0", wan_up_bytes=1_500_000, waiting_for="round 5 from virginia/global0"))
    known.take({"kind": "status", "node": "", "t": 42.0, "rate": 12.5})
    out = io.StringIO()
    Console(file=out, width=120).print(progress.site_table(known, "quickstart on simulate"))
    lines = out.getvalue().splitlines()
    assert "virtual time 42 s" in lines[0]
    (tokyo,) = [line for line in lines if "tokyo" in line]
    assert tokyo.split()[:8] == ["tokyo", "5", "1", "0", "0.512", "87.5", "%", "1.5"]
    assert tokyo.rstrip().endswith("round 5 from virginia/global0")
    assert len([line for line in lines if line.strip().startswith(("virginia", "frankfurt"))]) == 2


def test_the_log_has_one_clock_and_not_every_status(tmp_path: Path) -> None:
    with progress.Logged(progress.Display(), tmp_path / "log", make_plan()) as shown:
        shown.show({"kind": "stage", "name": "network up", "links": 6, "t": 0.5})
        shown.show(status("tokyo/worker0", t=2.0))
        shown.show({"kind": "error", "message": "tokyo/worker0 died", "t": 2.25})
        shown.show({"kind": "stage", "name": "stopping"})
    assert (tmp_path / "log").read_text().splitlines() == [
        "[wall     0.50 s] network up links=6",
        "[wall     2.25 s] error: tokyo/worker0 died",
        "[wall     2.25 s] stopping",
    ]


def test_the_live_table_runs_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100, **look.AS_WRITTEN)
    monkeypatch.setattr(look, "console", lambda: console)
    shown = progress.LiveTable(make_plan(), Clock())
    with shown:
        shown.show({"kind": "stage", "name": "training"})
        shown.show({"kind": "round", "node": "tokyo/worker0", "round": 7, "loss": 0.5})
        shown.show({"kind": "warning", "message": "a link is slow [sic]"})
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "a link is slow [sic]" in text
    assert "tokyo" in text
    assert "8/8" in text


def test_brackets_of_the_user_s_text_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """They are no markup: what is lost from a command makes it another one."""
    words = ("--set links[*].rate=5", "data_centers[tokyo].workers=4", "command=[/bin/echo, hi]", "[bold]")
    shown = look.table("title [bold]", "column [bold]", rows=[[word] for word in words])
    look.console().print(shown, *words, sep="\n")
    printed = capsys.readouterr().out
    for text in (printed, summary.as_text([shown, *words]), html.unescape(html_of(shown, *words))):
        assert all(text.count(word) >= 2 for word in words) and text.count("[bold]") == 4


def test_a_summary_counts_each_byte_over_the_wan_once(tmp_path: Path) -> None:
    text = summary.as_text(summary.summary_of(load_run(make_run(tmp_path / "run"))))
    assert "3.33 MB over the WAN, and 5.76 kB of headers: 1.66 MB to, 1.66 MB from virginia" in text
    rows = [line.split() for line in text.splitlines() if line.strip().startswith(("tokyo ", "frankfurt "))]
    assert rows == [[site, "832", "kB", "832", "kB"] for site in ("tokyo", "frankfurt")]
    assert "fidelity: ok\nnotes:\n  - network.jitter" in text


@for_each(("most", "about"), [(8, "of at most 8"), (5, "as the script says; training.rounds is 5")])
def test_a_script_may_make_more_rounds_than_the_scenario_says(most: int, about: str, tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path / "run"))
    run.plan["training"]["rounds"] = most
    assert about in summary.as_text(summary.summary_of(run))


def swept(kind: str, seed: int, time_s: float | None, **more: Any) -> dict[str, Any]:
    same = {"status": "done", "accuracy": 0.9, "round_time_s": 0.5, "step_time_s": 0.5, "training_s": 50.0}
    return {"sync": kind, "seed": seed, "time_to_target_s": time_s, "wan_bytes": 2e6, **same, **more}


def cells(rows: list[dict[str, Any]]) -> list[str]:
    """Return the cells for time to target, one a point."""
    table = summary.sweep_table(cases_of(points_of(rows, ["sync"])))
    return list(next(column for column in table.columns if column.header == "to target").cells)


def test_a_sweep_compares_runs_of_one_seed_with_each_other() -> None:
    """Seeds differ by ten times, and the ratio hardly: an interval of means would reach below 0."""
    base = {1: 3.0, 2: 12.0, 3: 33.0}
    rows = [swept("fsa", seed, time_s) for seed, time_s in base.items()]
    factors = {1: 1.33, 2: 1.332, 3: 1.332}
    rows += [swept("hfa", seed, time_s * factors[seed]) for seed, time_s in base.items()]
    assert cells(rows) == ["12 s\n(3 to 33 s)", "16 s\n(3.99 to 44 s)\n1.33×\n(1.33 to 1.33)"]


def compared(*differences: dict[str, Any]) -> str:
    """Return a comparison of runs that differ from the first, which is done, as text."""
    row = {
        "label": "FSA",
        "run": "a",
        "fidelity": "ok",
        "status": "done",
        "accuracy": 0.9,
        "round_time_s": 0.5,
        "accuracy_at_target": None,
        "step_time_s": 0.5,
        "samples_per_s": 100.0,
        "time_to_target_s": None,
        "target": None,
        "speed_up": 1.0,
        "wan_bytes": 2_000_000,
        "waiting_share": 0.1,
        "resumed_round": None,
    }
    out = io.StringIO()
    Console(file=out, width=120).print(summary.comparison_table([row, *(row | each for each in differences)]))
    return out.getvalue()


def test_a_comparison_says_which_runs_were_not_done() -> None:
    states = ("interrupted", "failed", "diverged", "reduced")
    text = compared(*({"run": "b", "status": state} for state in states))
    assert all(text.count(state) == 1 for state in states) and "done" not in text


@for_each(
    ("stages", "told"),
    [
        (None, "identical on all workers"),
        ({"gradient_bytes": {}}, "of all stages"),
        ({"gradient_bytes": {"a>b": 8}}, "of all stages; identical on all replicas"),
    ],
)
def test_workers_of_different_stages_are_not_said_to_have_equal_parameters(
    stages: dict[str, dict[str, int]] | None, told: str
) -> None:
    assert summary._agreement({"parameters_agree": True, "stages": stages}) == told


def test_faults_are_told_in_training_time_as_the_scenario_says_them() -> None:
    happened = {"node": "faults", "t_s": 9.25, "kind": "fault", "fault": "down", "targets": "a>b", "begins": True}
    training = pd.DataFrame({"t_s": [4.25], "trained_s": [0.0]})
    tables = {"faults": pd.DataFrame([{**happened, "late_s": 0.0}]), "training": training}
    (shown,) = summary.faults(SimpleNamespace(tables=tables, result=None, start_s=4.25))  # type: ignore[arg-type]
    lines = summary.as_text([shown]).splitlines()
    assert any("training time" in line for line in lines)
    assert any(line.split() == ["5", "s", "down", "a>b", "0", "s"] for line in lines)


def test_a_target_that_the_first_evaluation_meets_is_an_upper_bound() -> None:
    result = {"time_to_target_s": 16.0, "accuracy_at_target": 0.997, "accuracy": 1.0, "loss": 0.1}
    for evaluations, is_told in ((1, True), (2, False), (None, False)):
        *_, (name, value, about) = summary._learning(
            Target(ACCURACY, 0.85), {**result, "evaluations_to_target": evaluations}
        )
        assert (name, value) == ("time to 85 %", "16 s")
        assert about.startswith("or less: the first evaluation met it; accuracy 99.7 % then") == is_told
