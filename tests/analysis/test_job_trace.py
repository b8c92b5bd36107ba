"""A run that is exported as a trace, and played again on the same network, takes as long."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from analysis import job_trace
from analysis.breakdown import per_rank
from analysis.figures import run as run_figure
from analysis.load import StoredRun, Tables
from analysis.load import load as load_runs
from testbed import api
from testbed.display.summary import as_text, summary_of
from testbed.errors import ScenarioError
from testbed.job_trace.checks import check
from testbed.job_trace.model import RECEIVE, SEND, Rates
from testbed.job_trace.reading import read_job
from testbed.job_trace.writing import write_chakra
from testbed.plan.model import to_json
from testbed.scenario.load import load
from tests.engine.runs import Simulated, run
from tests.for_each import for_each
from tests.job_trace import shipped
from tests.job_trace.made import compute, receive, send, written

SHORT = ("training.rounds=3", "training.evaluate_every=3")
STEADY = ("training.rounds=6", "training.evaluate_every=6")
REPLAY = """
version: 1
name: again
seed: 1
run: {on: simulate}
topology:
  data_centers:
    - {name: hub, central: true, workers: HUB}
    - {name: east, workers: EAST}
    - {name: west, workers: WEST}
  links:
    - {between: [hub, east], rate: 20 Mbit/s, delay: 10 ms}
    - {between: [hub, west], rate: 20 Mbit/s, delay: 15 ms}
    - {between: [east, west], rate: 20 Mbit/s, delay: 5 ms}
workload: {trace: job}
"""


def stored(folder: Path, finished: Simulated) -> StoredRun:
    plan = json.loads(to_json(finished.plan))
    return StoredRun(folder, plan, {}, None, None, None, Tables(folder, {}))  # type: ignore[arg-type]


def period_s(finished: Simulated) -> float:
    """Return the time from the end of round 4 to that of round 5, each at the last node."""
    ends = [max(event["t"] for event in finished.of_kind("round") if event["round"] == each) for each in (4, 5)]
    return float(ends[1] - ends[0])


@for_each(
    "settings",
    [
        ("simulation.network=ideal", "paradigm=allreduce"),
        ("simulation.network=ideal", "simulation.fold=false"),
        ("simulation.network=ideal", "paradigm=allreduce", "codec=fp16"),
        ("simulation.network=packets", "paradigm={kind: allreduce, algorithm: three_phase_ring}"),
    ],
)
def test_a_round_takes_as_long_when_it_is_played_again(tmp_path: Path, settings: tuple[str, ...]) -> None:
    """The rounds before have opened the windows of the connections, in the run and in what is played."""
    first = run(tmp_path / "first", *STEADY, *settings)
    write_chakra(job_trace.job_of(stored(tmp_path / "first", first), 5), tmp_path, "job", as_json=True)
    text = REPLAY
    for site in ("hub", "east", "west"):
        nodes = [node for node in first.plan.nodes if node.data_center == site and node.role != "scheduler"]
        text = text.replace(site.upper(), str(len(nodes)))
    (tmp_path / "again.yaml").write_text(text)
    again = run(tmp_path / "again", settings[0], "training.rounds=6", scenario=tmp_path / "again.yaml")
    assert period_s(again) == pytest.approx(period_s(first), rel=0.02)


def test_the_trace_has_the_work_and_the_messages_of_the_run(tmp_path: Path) -> None:
    first = run(tmp_path / "run", *SHORT, "simulation.network=ideal", "paradigm=allreduce", "codec=fp16")
    found = stored(tmp_path / "run", first)
    traced = job_trace.job_of(found)
    check(traced, Rates())
    nodes = [node for trace in traced.ranks for node in trace.nodes]
    sent = [event["payload_bytes"] for event in first.of_kind("transfer") if event["round"] >= 0]
    assert sum(node.size_bytes for node in nodes if node.kind == SEND) == sum(sent)
    work = [event for event in first.of_kind("compute") if event["round"] >= 0]
    steps_s = sum(event["t"] - event["t0"] for event in work if event["work"] == "step")
    assert sum(node.duration_s for node in nodes if node.name == "step") == pytest.approx(steps_s)
    assert {node.on_host for node in nodes if node.name in ("encode", "decode")} == {True}
    [only] = {node.duration_s for node in job_trace.job_of(found, 0).ranks[0].nodes if node.name == "step"}
    assert only == pytest.approx(0.1, abs=1e-6)
    with pytest.raises(ScenarioError, match="has no round 7; they are counted from 0"):
        job_trace.job_of(found, 7)


def test_what_a_node_waited_for_in_vain_is_a_pause() -> None:
    """Between its work and its message nothing came, and half a second went by."""
    rounds = pd.DataFrame([("a", 0, 1.0, 4.0), ("b", 0, 1.0, 4.0)], columns=["node", "round", "t0_s", "t_s"])
    work = pd.DataFrame([("a", 0, 1.0, 2.0, "step")], columns=["node", "round", "t0_s", "t_s", "work"])
    names = ["source", "target", "round", "t0_s", "t_s", "message", "payload_bytes", "header_bytes"]
    sent = pd.DataFrame([("a", "b", 0, 2.5, 3.0, "push", 64, 8)], columns=names)
    plan = {"nodes": [{"name": name, "role": "worker"} for name in ("a", "b")]}
    tables = Tables(Path(), {"rounds": rounds, "computes": work, "transfers": sent})
    run = StoredRun(Path(), plan, {}, None, None, None, tables)  # type: ignore[arg-type]
    [sender, receiver] = job_trace.job_of(run).ranks
    assert [(node.name, node.duration_s, node.after) for node in sender.nodes] == [
        ("step", 1.0, ()),
        ("pause", 0.5, (0,)),
        ("push", 0.0, (1,)),
    ]
    assert [(node.kind, node.size_bytes, node.peer) for node in receiver.nodes] == [(RECEIVE, 64, 0)]


def test_a_run_with_brief_logs_is_refused(tmp_path: Path) -> None:
    first = run(tmp_path / "run", *SHORT, "simulation.events=brief")
    with pytest.raises(ScenarioError, match=r"its logs are brief; run it again with simulation\.events: full"):
        job_trace.job_of(stored(tmp_path / "run", first))


def test_a_node_without_work_has_a_trace_all_the_same(tmp_path: Path) -> None:
    """The central data centre has no worker that trains; other simulators end with an empty file."""
    settings = ("data_centers[hub].workers=0", "paradigm=ps", "simulation.network=ideal")
    first = run(tmp_path / "run", *SHORT, *settings)
    traced = job_trace.job_of(stored(tmp_path / "run", first), 1)
    assert [node.name for node in traced.ranks[0].nodes] == ["idle"]


def test_files_of_both_formats_are_written(tmp_path: Path) -> None:
    pytest.importorskip("google.protobuf")
    first = run(tmp_path / "run", *SHORT, "simulation.network=ideal", "paradigm=allreduce")
    found = stored(tmp_path / "run", first)
    paths = job_trace.chakra([found], tmp_path / "out", 1)
    assert [path.relative_to(tmp_path).as_posix() for path in paths] == [f"out/run/job.{rank}.et" for rank in range(4)]
    read, made = (job.ranks[0].nodes for job in (read_job(str(tmp_path / "out" / "run")), job_trace.job_of(found, 1)))
    assert [(node.kind, node.after, node.size_bytes) for node in read] == [
        (node.kind, node.after, node.size_bytes) for node in made
    ]
    [path] = job_trace.goal([found], tmp_path / "out", 1)
    assert path.read_text().startswith("num_ranks 4\n\nrank 0 {\nl0: calc 100000000\n")


def test_the_time_of_a_rank_is_work_messages_and_waiting(tmp_path: Path) -> None:
    """The second rank waits while the first one computes, then a message is on its way to it, then it computes."""
    written(tmp_path, [compute(1, 0.3), send(2, 1, 250_000, 1)], [receive(1, 0, 250_000), compute(2, 0.2, 1)])
    text = REPLAY.replace("HUB", "1").replace("EAST", "1").replace("    - {name: west, workers: WEST}\n", "")
    (tmp_path / "s.yaml").write_text("\n".join(line for line in text.splitlines() if "west]" not in line))
    finished = run(tmp_path / "run", "simulation.network=ideal", scenario=tmp_path / "s.yaml")
    found = per_rank(stored(tmp_path / "run", finished).tables).set_index("node")
    sending, receiving = found.loc["hub/worker0"], found.loc["east/worker0"]
    assert (sending["compute_s"], receiving["compute_s"]) == pytest.approx((0.3, 0.2), abs=1e-6)
    assert receiving["wan_s"] == pytest.approx(250_000 * 8 / 20e6 + 0.01, rel=0.01)
    assert receiving["waiting_s"] == pytest.approx(0.3 - 0.01, abs=2e-3)  # it has begun a delay later
    assert sending["wan_s"] == pytest.approx(0.0, abs=1e-3)  # nothing but the release of the barrier came to it


def test_a_run_of_a_trace_is_summed_up_and_drawn(tmp_path: Path) -> None:
    scenario = load(shipped.FOLDER / "two-stages.yaml", ("training.rounds=1", "simulation.network=ideal"))
    finished = api.run(scenario, on="simulate", out=tmp_path / "run", progress=False)
    [found] = load_runs([tmp_path / "run"])
    text = as_text(summary_of(found))
    assert "job" in text and "ranks" in text and "as the last one" in text
    assert "accuracy" not in text and "step time" not in text
    figure = run_figure.draw(found)
    titles = [axes.get_title(loc="left") for part in figure.subfigs for axes in part.axes]
    assert "Ranks over time" in titles and "Accuracy over time" not in titles
    assert finished.result is not None and finished.result["training_s"] > 5 * shipped.FORWARD_S
