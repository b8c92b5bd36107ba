"""A run that is exported as a trace, and played again on the same network, takes as long."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analysis import job_trace
from analysis.load import StoredRun, Tables
from testbed.errors import ScenarioError
from testbed.job_trace.checks import check
from testbed.job_trace.model import SEND, Rates
from testbed.job_trace.reading import read_job
from testbed.job_trace.writing import write_chakra
from testbed.plan.model import to_json
from tests.engine.runs import Simulated, run
from tests.for_each import for_each

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
