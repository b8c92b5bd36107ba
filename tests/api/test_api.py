"""The library: the command's validation, runs and errors as Python objects; callbacks and live logs."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import testbed
from analysis import trackers
from analysis.load import StoredRun
from analysis.trackers.base import Tracker
from testbed import api, callbacks
from testbed.display.progress import Display
from testbed.errors import CapabilityError, RunFailed, ScenarioError
from testbed.execution import host, session
from testbed.execution.sweep import SweepJob
from testbed.plan.model import Plan
from testbed.results.rounds import CompletedRound
from testbed.results.scalars import SeriesValue
from tests.cli.forked import command, simulate_here
from tests.for_each import for_each

SMALL: dict[str, Any] = {
    "version": 1,
    "name": "small",
    "seed": 1,
    "run": {"on": "simulate"},
    "topology": {
        "data_centers": [{"name": "a", "central": True, "workers": 1}, {"name": "b", "workers": 1}],
        "links": [{"between": ["a", "b"], "rate": "10 Mbit/s", "delay": "5 ms"}],
    },
    "training": {"model": {"kind": "mlp", "hidden": 8}, "data": "digits", "rounds": 4, "evaluate_every": 2},
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> api.Run:
    return api.run(SMALL, out=tmp_path_factory.mktemp("api") / "run", progress=False)


@pytest.mark.slow  # 9 s
def test_the_command_ends_with_the_same_bits_and_leaves_torch_to_who_trains(finished: api.Run, tmp_path: Path) -> None:
    """Importing torch costs nearly two seconds of processor time in each process; importing the package is light."""
    scenario = tmp_path / "small.yaml"
    scenario.write_text(api.load(SMALL).to_yaml())
    code = (
        "import sys, testbed\n"
        "from testbed.cli.main import main\n"
        "heavy = {'torch', 'pandas', 'matplotlib', 'pydantic', 'simpy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "assert testbed.load.__module__ == 'testbed.api' and callable(testbed.run)\n"
        "import testbed.execution.session\n"
        "assert callable(testbed.run)\n"
        "assert main(['run', sys.argv[1], '--out', sys.argv[2]]) == 0\n"
        "assert 'matplotlib.figure' in sys.modules, 'it drew no figure'\n"
        "assert 'torch' not in sys.modules\n"
    )
    argv = [sys.executable, "-c", code, str(scenario), str(tmp_path / "run")]
    subprocess.run(argv, check=True, timeout=240, stdout=subprocess.DEVNULL)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert finished.result is not None
    assert result["parameters_sha256"] == finished.result["parameters_sha256"] is not None
    assert result["plan_sha256"] == finished.result["plan_sha256"]


def test_the_run_directory_names_the_back_end_that_ran(tmp_path: Path) -> None:
    scenario = api.load({**SMALL, "run": {"on": "emulate"}})
    run = api.run(scenario, on="simulate", out=tmp_path / "run", progress=False)
    for name in ("scenario.yaml", "resolved.yaml"):
        assert api.load(run.path / name).run.on == run.plan["back_end"] == "simulate"


def test_a_mapping_and_its_yaml_are_the_same_scenario() -> None:
    scenario = api.load(SMALL)
    assert scenario.training.rounds == 4
    assert api.load({**SMALL, "codec": "fp16"}) == api.load(SMALL, set={"codec": "fp16"}) != scenario


def test_a_scenario_that_python_has_made_keeps_the_rules(tmp_path: Path) -> None:
    made = api.Scenario.read({**SMALL, "order": "dgt", "overlay": "tsengine"})
    with pytest.raises(ScenarioError, match=r"overlay\.tier2: blocks go straight to the global servers"):
        api.run(made, out=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


@for_each(
    ("set_", "seen"),
    [
        ({"training.rounds": 9}, lambda scenario: scenario.training.rounds == 9),
        ({"optimizer": {"kind": "sgd", "learning_rate": 1e-05}}, lambda s: s.optimizer.options.learning_rate == 1e-05),
        ({"links[*].rate": "5 Mbit/s"}, lambda scenario: scenario.topology.links[0].rate_bps == 5e6),
        ({"optimizer.learning_rate": np.float64(0.01)}, lambda s: s.optimizer.options.learning_rate == 0.01),
        ({"checkpoint": {"every": 2}}, lambda scenario: scenario.checkpoint.every == 2),
        ({"faults": [{"kind": "pause", "node": "b/worker0", "at": "1 s", "for": "1 s"}]}, lambda s: len(s.faults) == 1),
    ],
)
def test_python_values_are_settings(set_: dict[str, Any], seen: Any) -> None:
    assert seen(api.load(SMALL, set=set_))


def test_code_is_looked_up_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its path begins with, also where a shipped scenario lies elsewhere."""
    (tmp_path / "notebooks").mkdir()
    text = (Path(__file__).parents[1] / "testing/examples/sign_sgd.py").read_text()
    for file in ("mine.py", "notebooks/mine.py"):
        (tmp_path / file).write_text(text)
    monkeypatch.chdir(tmp_path / "notebooks")
    here = "notebooks/mine.py"
    for place, file in (("../mine.py", "mine.py"), ("mine.py", here), ("./mine.py", here)):
        for value in (f"{place}:SignSgd", {"tier1": "none", "tier2": {"kind": f"{place}:SignSgd"}}):
            codec = api.load("quickstart", set={"codec": value}).codec.tier2
            assert codec.kind == f"{tmp_path / file}:SignSgd"


def test_errors_have_the_texts_of_the_command(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as raised:
        api.load("quickstart", set={"training.rounds": -1, "codec": "fp61"})
    assert "training.rounds" in str(raised.value) and "did you mean 'fp16'?" in str(raised.value)
    with pytest.raises(ScenarioError, match="neither a file nor a shipped scenario"):
        api.load("quickstrat")
    with pytest.raises(ScenarioError, match="is not one of"):
        api.run(SMALL, on="cloud", out=tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_a_run_has_result_tables_and_figure(finished: api.Run) -> None:
    assert finished.result is not None and finished.result["rounds"] == 4
    assert finished.tables["rounds"]["round"].max() == 3
    assert finished.figure().axes
    assert "small on simulate: done" in str(finished)
    html = finished._repr_html_()
    assert "small on simulate" in html and "data:image/png;base64," in html


def test_a_simulation_depends_on_nothing_that_its_process_has_set_of_torch(finished: api.Run, tmp_path: Path) -> None:
    """Nor does it change that: a notebook may have numbers of its own."""
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    torch.use_deterministic_algorithms(True)
    try:
        with torch.inference_mode():
            run = api.run(SMALL, out=tmp_path / "run", progress=False)
            assert torch.is_inference_mode_enabled()
        assert torch.get_num_threads() == threads + 1 and torch.are_deterministic_algorithms_enabled()
        assert torch.get_default_dtype() is torch.float64 and torch.get_default_device().type == "meta"
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_default_device(None)
        torch.set_default_dtype(torch.float32)
        torch.set_num_threads(threads)
    assert finished.result is not None and run.result is not None
    assert run.result["parameters_sha256"] == finished.result["parameters_sha256"] is not None


def test_a_failed_run_raises_and_keeps_its_results(tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    broken = {**SMALL, "timeouts": {"rendezvous": "1 ms"}}
    with pytest.raises(RunFailed, match=r"waited 0.001 s for all nodes to register.*run directory"):
        api.run(broken, out=tmp_path / "run", progress=False)
    assert api.open_run(tmp_path / "run").status.state == "failed"
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("on", ["simulate", pytest.param("local", marks=pytest.mark.slow)])  # 4 s
def test_an_exception_of_a_technique_from_outside_has_node_and_place(on: str, tmp_path: Path) -> None:
    """It is not called an error of the testbed."""
    own = (Path(__file__).parents[1] / "testing/examples/sign_sgd.py").read_text()
    before, line, after = own.partition("        bits, scale = parts[0]")
    (tmp_path / "mine.py").write_text(f"{before}        1 / 0\n{line}{after}")
    scenario = api.load(SMALL, set={"codec": f"{tmp_path / 'mine.py'}:SignSgd"})
    says = rf"^[ab]/\w+: {tmp_path}/mine.py:{before.count(chr(10)) + 1}: ZeroDivisionError: division by zero"
    with pytest.raises(RunFailed, match=says) as raised:
        api.run(scenario, on=on, out=tmp_path / "run", progress=False)
    assert "testbed itself" not in str(raised.value)


def test_a_training_that_diverges_is_called_so(tmp_path: Path) -> None:
    """A run with its results for the library, an exit code of its own for scripts."""
    diverging = {"training.rounds": 12, "optimizer": {"kind": "sgd", "learning_rate": 100.0}}
    scenario = api.load(SMALL, diverging)
    run = api.run(api.load(SMALL), diverging, out=tmp_path / "run", progress=False)
    assert run.status.state == "diverged" and run.result is not None
    assert run.result["rounds"] == 12 and "the training diverged: the loss rose from 2" in run.result["message"]
    assert "small on simulate: diverged" in str(run)
    (tmp_path / "s.yaml").write_text(scenario.to_yaml())
    done = command(["run", str(tmp_path / "s.yaml"), "--out", str(tmp_path / "out"), "--quiet"], prepare=simulate_here)
    assert done.returncode == 7 and "the training diverged" in done.stderr
    again = command(["run", str(tmp_path / "s.yaml"), "--out", str(tmp_path / "out")])
    assert again.returncode == 7 and "has been run already" in again.stdout, "the run is still diverged"


def test_an_interrupt_ends_the_run_with_its_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Impatient(Display):
        def show(self, event: Any) -> None:
            if event["kind"] == "train":
                raise KeyboardInterrupt

    monkeypatch.setattr(api.displays, "choose", lambda *args, **options: Impatient())
    with pytest.raises(KeyboardInterrupt, match="results so far"):
        api.run(SMALL, out=tmp_path / "run")
    assert api.open_run(tmp_path / "run").status.state == "interrupted"


@pytest.mark.slow  # 6 s
def test_a_sweep_is_a_frame(tmp_path: Path) -> None:
    """Where the process has threads, as a notebook's kernel: it must not be forked."""
    stop = threading.Event()
    threading.Thread(target=stop.wait, daemon=True).start()
    try:
        sweep = api.sweep(SMALL, grid={"codec": ["none", "fp16"]}, seeds=2, out=tmp_path / "sweep")
    finally:
        stop.set()
    frame = sweep.frame()
    assert frame["codec"].tolist() == ["none", "none", "fp16", "fp16"] and set(frame["status"]) == {"done"}
    assert [run.result["seed"] for run in sweep.runs if run.result] == [1, 2, 1, 2]
    assert "FP16" in sweep._repr_html_()


def test_a_sweep_keeps_runs_that_diverged_and_finds_code_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("testbed.api.threading.active_count", lambda: 1)  # of threads it makes a process of its own
    examples = Path(__file__).parents[1] / "testing" / "examples"
    (tmp_path / "mine.py").write_text((examples / "narrow_perceptron.py").read_text())
    scenario = api.load(SMALL, set={"training.rounds": 12, "optimizer.kind": "sgd"})
    grid = {"training.model": ["./mine.py:NarrowPerceptron"], "optimizer.learning_rate": [0.1, 100.0]}
    sweep = api.sweep(scenario, grid=grid, out="sweep")
    assert [run.status.state for run in sweep.runs] == ["done", "diverged"]
    assert sweep.frame()["status"].tolist() == ["done", "diverged"]
    assert "1 diverged" in sweep._repr_html_()
    assert "diverged" in api.compare(sweep.runs)._repr_html_()


@for_each(
    ("grid", "says"),
    [
        ({"codec": "fp16"}, r"codec: expected a list of values, got 'fp16'; write \['fp16'\]"),
        ({"training.batch": 8}, "training.batch: expected a list"),
        ({"codec": {"kind": "fp16"}}, "codec: expected a list"),
        ({"codec": []}, "codec: the list of values is empty"),
        ({"codec": ["none", "fp61"]}, "fp61"),
    ],
)
def test_a_grid_that_is_refused_leaves_an_earlier_sweep_as_it_is(grid: Any, says: str, tmp_path: Path) -> None:
    (tmp_path / "scenario.yaml").write_text("of the earlier one")
    with pytest.raises(ScenarioError, match=says):
        api.sweep(SMALL, grid=grid, out=tmp_path)
    assert (tmp_path / "scenario.yaml").read_text() == "of the earlier one"
    assert {path.name for path in tmp_path.iterdir()} <= {"scenario.yaml", "refused.yaml"}


def test_a_section_of_the_scenarios_file_counts_as_for_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = "{seeds: [3, 5], grid: {codec: [none, fp16]}, zip: {training.batch: [8, 16], training.rounds: [2, 3]}}"
    file = tmp_path / "small.yaml"
    file.write_text(f"{api.load(SMALL).to_yaml()}sweep: {section}\n")
    jobs: list[SweepJob] = []

    def execute(job: SweepJob, on_state: Any) -> list[Any]:
        jobs.append(job)
        return []

    monkeypatch.setattr("testbed.execution.sweep.execute", execute)
    monkeypatch.setattr("testbed.api.threading.active_count", lambda: 1)
    swept = api.sweep(file, {"codec": ["twobit"]}, out=tmp_path / "out")
    assert swept.varied == ("training.batch", "training.rounds")
    assert [(*point.settings.values(), point.seed) for point in jobs[0].points] == [
        ("8", "2", "twobit", 3),
        ("8", "2", "twobit", 5),
        ("16", "3", "twobit", 3),
        ("16", "3", "twobit", 5),
    ]


def test_runs_are_compared(finished: api.Run, tmp_path: Path) -> None:
    other = api.run(SMALL, {"codec": "fp16"}, out=tmp_path / "fp16", progress=False)
    comparison = api.compare([finished, other.path])
    frame = comparison.frame()
    assert frame["wan_bytes"].tolist()[0] == 2 * frame["wan_bytes"].tolist()[1]
    assert comparison.figure().axes and r"\toprule" in comparison.latex() and "fp16" in comparison._repr_html_().lower()


def test_a_trace_of_a_file_is_read_as_a_scenario_would(tmp_path: Path) -> None:
    file = tmp_path / "all.csv"
    file.write_text("timestamp,src,dst,mbps,ping\n1718000000,a,b,5,80\n1718000000,b,a,6,90\n1718000010,a,b,4,100\n")
    pair = {"from": "a", "to": "b"}
    assert api.trace(str(file), set=pair).values == (5e6, 4e6)
    delays = api.trace(str(file), set={**pair, "what": "delay", "columns": {"rtt": "ping in ms"}})
    assert (delays.times_s, delays.values) == ((0.0, 10.0), (0.04, 0.05))
    with pytest.raises(ScenarioError, match=r"no rows from 'a' to 'c'; it has a>b, b>a \(choose one with 'from' and"):
        api.trace(str(file), set={**pair, "to": "c"})
    with pytest.raises(ScenarioError, match="trace: set: 'source' is not one of what, format"):
        api.trace(str(file), set={"source": "a"})


LONG = api.load(SMALL, set={"training.rounds": 40})


class Notes(testbed.Callback):
    """Records the calls that it gets."""

    def __init__(self) -> None:
        self.rounds: list[CompletedRound] = []
        self.scores: list[tuple[int, float | None]] = []
        self.calls: list[str] = []

    def on_start(self, plan: Plan, directory: Path) -> None:
        self.calls.append(f"start {plan.name} {(directory / 'plan.json').is_file()}")

    def on_round(self, completed: CompletedRound) -> None:
        self.rounds.append(completed)

    def on_evaluate(self, evaluated: callbacks.EvaluatedRound) -> None:
        self.scores.append((evaluated.number, evaluated.accuracy))

    def on_end(self, run: StoredRun) -> None:
        self.calls.append(f"end {run.status.state} {run.result is not None}")


def test_callbacks_see_the_same_rounds_in_both_worlds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # a process of its own takes two seconds to start
    monkeypatch.setattr(session, "run", lambda plan, directory, report, *_: host.attempt(plan, directory, report))
    notes = {on: Notes() for on in ("simulate", "local")}
    for on, callback in notes.items():
        run = api.run(SMALL, on=on, out=tmp_path / on, progress=False, callbacks=[callback])
        assert callback.calls == ["start small True", "end done True"]
        assert [completed.number for completed in callback.rounds] == [0, 1, 2, 3]
        assert [completed.samples for completed in callback.rounds] == [64] * 4
        assert callback.scores == list(
            zip(run.tables["accuracy"]["round"], run.tables["accuracy"]["accuracy"], strict=True)
        )
        assert callback.rounds[-1].t_s == pytest.approx(run.tables["rounds"]["t_s"].max(), abs=1e-6)
    simulated, local = ([completed.loss for completed in each.rounds] for each in notes.values())
    assert simulated == local


@pytest.mark.parametrize("on", ["simulate", pytest.param("local", marks=pytest.mark.slow)])  # 6 s
def test_a_callback_ends_the_run_with_its_results(on: str, tmp_path: Path) -> None:
    class Early(Notes):
        def on_evaluate(self, evaluated: callbacks.EvaluatedRound) -> None:
            super().on_evaluate(evaluated)
            raise testbed.StopRun("good enough")

    early = Early()
    run = api.run(LONG, on=on, out=tmp_path / "run", progress=False, callbacks=[early])
    assert run.status.state == "interrupted" and run.status.message == "stopped by Early.on_evaluate: good enough"
    assert len(early.scores) == 1 and early.calls == ["start small True", "end interrupted True"]
    assert run.result is not None and run.result["rounds"] < 40


def test_what_is_no_callback_is_refused_before_anything_is_created(tmp_path: Path) -> None:
    class Own:
        def on_round(self, completed: CompletedRound) -> None: ...

    given: list[Any] = [[Own()], [Notes], Notes()]
    for callback, told in zip(given, ("Own is not a", "type is not a", "expected a list, got Notes"), strict=True):
        with pytest.raises(ScenarioError, match=f"callbacks: {told}"):
            api.run(SMALL, out=tmp_path / "run", progress=False, callbacks=callback)
    assert not (tmp_path / "run").exists()


def test_a_failing_callback_is_the_cause(tmp_path: Path) -> None:
    class Broken(testbed.Callback):
        def on_round(self, completed: CompletedRound) -> None:
            raise KeyError("loss")

    with pytest.raises(RunFailed, match=r"Broken.on_round raised KeyError: 'loss' \(run directory: ") as raised:
        api.run(LONG, out=tmp_path / "run", progress=False, callbacks=[Broken()])
    assert isinstance(raised.value.__cause__, KeyError)
    assert api.open_run(tmp_path / "run").status.state == "failed"


class Ends(testbed.Callback):
    """Raises in the end."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def on_end(self, run: StoredRun) -> None:
        raise self._error


def test_an_error_at_the_end_is_raised_after_all_followers_have_had_their_end(
    memory: type[Memory], tmp_path: Path
) -> None:
    notes, out = Notes(), tmp_path / "run"
    followers = [Ends(KeyError("loss")), Ends(ValueError("two")), notes]
    with (
        pytest.warns(UserWarning, match="Ends.on_end raised ValueError: two"),
        pytest.raises(RunFailed, match=r"Ends.on_end raised KeyError: 'loss' \(run directory: ") as raised,
    ):
        api.run(SMALL, out=out, progress=False, log=["tensorboard"], callbacks=followers)
    assert isinstance(raised.value.__cause__, KeyError)
    assert notes.calls[-1] == "end done True" and memory.closed is not None
    assert api.open_run(out).status.state == "done"


class Memory(Tracker):
    """A tracker in this process."""

    shares = True
    written: list[SeriesValue]
    closed: Mapping[str, float] | None

    def __init__(self, run: str, plan: Any, out: Path) -> None:
        Memory.written, Memory.closed, self.files = [], None, []

    def write(self, scalars: Iterable[SeriesValue]) -> None:
        Memory.written += scalars

    def close(self, summary: Mapping[str, float]) -> None:
        Memory.closed = summary


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Memory]]:
    monkeypatch.setitem(trackers.TRACKERS, "tensorboard", Memory)
    monkeypatch.setattr(trackers, "needed", lambda kind: None)
    monkeypatch.setattr(callbacks, "_POLL_EVERY_S", 0.0)
    yield Memory


def test_a_tracker_that_fails_is_given_up_with_a_warning(
    memory: type[Memory], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Memory, scalars: Iterable[SeriesValue]) -> None:
        raise OSError("no space")

    monkeypatch.setattr(memory, "write", full)
    run = api.run(SMALL, out=tmp_path / "run", progress=False, log=["tensorboard"])
    assert run.status.state == "done"
    assert (run.path / "log").read_text().count("warning: --log tensorboard is given up: OSError: no space") == 1


def test_a_missing_package_or_unknown_tracker_is_told_before_anything_is_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(module: str) -> Any:
        raise ImportError(module)

    monkeypatch.setattr("importlib.import_module", absent)
    with pytest.raises(CapabilityError, match=r"'wandb' is missing, the extra \[wandb\].* -m pip install wandb"):
        api.run(SMALL, out=tmp_path / "run", log=["wandb"])
    monkeypatch.undo()
    with pytest.raises(ScenarioError, match="tensorboard,wandb,mlflow"):
        api.run(SMALL, out=tmp_path / "run", log=["tensorbord"])
    (tmp_path / "s.yaml").write_text(LONG.to_yaml())
    done = command(["run", str(tmp_path / "s.yaml"), "--out", str(tmp_path / "run"), "--log", "tensorbord"])
    assert done.returncode == 2 and "--log tensorbord: not a tracker" in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_sweep_takes_techniques_instead_of_those_of_the_scenario(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[SweepJob] = []
    monkeypatch.setattr("testbed.execution.sweep.execute", lambda job, on_state: jobs.append(job) or [])
    monkeypatch.setattr("testbed.api.threading.active_count", lambda: 1)
    scenario = api.load(SMALL, {"sync": "hfa", "topology.data_centers[b].workers": 2})
    swept = api.sweep(scenario, techniques=["fsa", "hitopk"], seeds=2, out=tmp_path)
    [job] = jobs
    assert swept.varied == () and [*job.left_out] == ["hitopk"]
    assert [(point.settings["technique"], point.seed) for point in job.points] == [("fsa", 1), ("fsa", 2)]
    assert job.points[0].plan.technique.sync_tier2.kind == "fsa"
    api.sweep(SMALL, techniques="all", out=tmp_path)
    assert {point.settings["technique"] for point in jobs[1].points} == set(api.presets()) - {"multigps"}
    assert jobs[1].left_out == {"multigps": "is the same as fsa on this scenario"}


@pytest.mark.slow  # 8 s
def test_a_search_in_a_process_with_threads_is_that_of_the_command(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    stop = threading.Event()
    threading.Thread(target=stop.wait, daemon=True).start()
    try:
        options: dict[str, Any] = {"techniques": ["fsa"], "tune": "learning_rate=0.001..0.1", "trials": 2, "seeds": 2}
        swept = api.sweep(SMALL, out=tmp_path, **options)
    finally:
        stop.set()
    rates = swept.frame()["optimizer.learning_rate"]
    assert len(rates) == 2 and set(rates) <= {"0.001", "0.0032"}
    assert f"fsa {rates[0]}." in str(api.compare(swept))
