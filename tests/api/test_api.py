"""The library: the same validation, runs and errors as the command, as Python objects."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from testbed import api
from testbed.display.progress import Display
from testbed.errors import CapabilityError, RunFailed, ScenarioError, TestbedError
from testbed.execution.sweep import SweepJob
from testbed.scenario.schema import Training
from testbed.scenario.sweep import from_options
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


def test_sections_are_typed_objects() -> None:
    training = Training(model={"kind": "mlp", "hidden": 8}, data="digits", rounds=4, evaluate_every=2)  # type: ignore[arg-type]
    built = api.Scenario(**{**SMALL, "training": training})
    assert built == api.load(SMALL) == api.load({**SMALL, "training": training})
    assert api.load(built, {"training.rounds": 9}).training.rounds == 9
    with pytest.raises(ValueError, match=r"-1 is outside \[1, 10000000\]"):
        Training(model="mlp", data="digits", rounds=-1)  # type: ignore[arg-type]
    nowhere = {"data_centers": [{"name": "a", "workers": 1}, {"name": "b", "workers": 1}], "links": []}
    with pytest.raises(ValueError, match="central"):
        api.Scenario(**{**SMALL, "topology": nowhere})


def test_a_scenario_that_python_has_made_keeps_the_rules(tmp_path: Path) -> None:
    made = api.Scenario(**{**SMALL, "order": "dgt", "overlay": "tsengine"})
    with pytest.raises(ScenarioError, match=r"overlay\.tier2: blocks go straight to the global servers"):
        api.run(made, out=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def test_a_mapping_may_hold_what_libraries_compute() -> None:
    assert api.load({**SMALL, "seed": np.int64(1), "name": np.str_("small")}) == api.load(SMALL)
    with pytest.raises(ScenarioError, match=r"^seed: a value of type object \(write"):
        api.load({**SMALL, "seed": object()})


def test_values_of_a_grid_stay_one_value_each() -> None:
    grid = {"d": ["it's", "a("], "a": ["x, y", "z"], "b": np.logspace(-2, -1, 2), "c": [["p", "q"]]}
    texts = api._texts(grid)  # type: ignore[arg-type]
    axes = from_options([f"{path}={','.join(values)}" for path, values in texts.items()], [], None).axes
    assert [len(axis.steps) for axis in axes] == [2, 2, 2, 1]
    assert axes[1].steps == (('"x, y"',), ("z",)) and axes[2].steps == (("0.01",), ("0.1",))


@for_each(
    ("set_", "seen"),
    [
        ({"training.rounds": 9}, lambda scenario: scenario.training.rounds == 9),
        ({"training.target_accuracy": 0.5}, lambda scenario: scenario.training.target_accuracy == 0.5),
        ({"optimizer": {"kind": "sgd", "learning_rate": 1e-05}}, lambda s: s.optimizer.options.learning_rate == 1e-05),
        ({"links[*].rate": "5 Mbit/s"}, lambda scenario: scenario.topology.links[0].rate == 5e6),
        ({"optimizer.learning_rate": np.float64(0.01)}, lambda s: s.optimizer.options.learning_rate == 0.01),
        ({"training.rounds": np.int64(9)}, lambda scenario: scenario.training.rounds == 9),
        ({"checkpoint": {"every": 2}}, lambda scenario: scenario.checkpoint.every == 2),
        ({"simulation.fold": False}, lambda scenario: scenario.simulation.fold is False),
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
    assert api._from_here("kind: ./mine.py:SignSgd") == "kind: ./mine.py:SignSgd"


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


def test_a_finished_run_is_not_repeated(finished: api.Run) -> None:
    stamp = (finished.path / "result.json").stat().st_mtime_ns
    again = api.run(SMALL, out=finished.path, progress=False)
    assert again.path == finished.path and (finished.path / "result.json").stat().st_mtime_ns == stamp
    with pytest.raises(ScenarioError, match="another"):
        api.run(SMALL | {"seed": 2}, out=finished.path, progress=False)


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
    scenario = api.load(SMALL, set={"training.rounds": 12, "optimizer": {"kind": "sgd", "learning_rate": 100.0}})
    run = api.run(scenario, out=tmp_path / "run", progress=False)
    assert run.status.state == "diverged" and run.result is not None
    assert run.result["rounds"] == 12 and "the training diverged: the loss rose from 2" in run.result["message"]
    assert "small on simulate: diverged" in str(run)
    (tmp_path / "s.yaml").write_text(scenario.to_yaml())
    done = command(["run", str(tmp_path / "s.yaml"), "--out", str(tmp_path / "out"), "--quiet"], prepare=simulate_here)
    assert done.returncode == 7 and "the training diverged" in done.stderr
    again = command(["run", str(tmp_path / "s.yaml"), "--out", str(tmp_path / "out")])
    assert again.returncode == 7 and "has been run already" in again.stdout, "the run is still diverged"


def test_numbers_that_are_not_finite_end_a_diverged_run(tmp_path: Path) -> None:
    wild = {"faults": [{"kind": "nan", "node": "b/worker0", "round": 2}]}
    run = api.run(api.load(SMALL, set=wild), out=tmp_path / "run", progress=False)
    assert run.status.state == "diverged" and run.result is not None and run.result["rounds"] == 2
    assert "non-finite gradient" in run.status.message and "lower the learning rate" in run.status.message


def test_an_interrupt_ends_the_run_with_its_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Impatient(Display):
        def show(self, event: Any) -> None:
            if event["kind"] == "train":
                raise KeyboardInterrupt

    monkeypatch.setattr(api.displays, "choose", lambda *args, **options: Impatient())
    with pytest.raises(KeyboardInterrupt, match="results so far"):
        api.run(SMALL, out=tmp_path / "run")
    assert api.open_run(tmp_path / "run").status.state == "interrupted"


def test_progress_is_shown_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    api.run(SMALL, out=tmp_path / "run")
    assert "4/4 rounds  4 steps, 128 samples per worker" in capsys.readouterr().out


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
    assert "fp16" in sweep._repr_html_()


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


def test_a_sweep_refuses_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="fp61"):
        api.sweep(SMALL, grid={"codec": ["none", "fp61"]}, out=tmp_path / "sweep")
    assert not (tmp_path / "sweep" / "runs").exists()


@for_each(
    ("grid", "says"),
    [({"codec": "fp16"}, r"codec: expected a list of values, got 'fp16'; write \['fp16'\]"),
     ({"training.batch": 8}, "training.batch: expected a list"),
     ({"codec": {"kind": "fp16"}}, "codec: expected a list"), ({"codec": []}, "codec: the list of values is empty"),
     ({"codec": ["none", "fp61"]}, "fp61")],
)  # fmt: skip
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
    commands: list[Sequence[str]] = []

    def execute(job: SweepJob, on_state: Any) -> list[Any]:
        jobs.append(job)
        return []

    def to_its_end(command: Sequence[str]) -> tuple[int, str]:
        commands.append(command)
        return 0, ""

    monkeypatch.setattr("testbed.execution.sweep.execute", execute)
    monkeypatch.setattr(api, "_run_to_its_end", to_its_end)
    monkeypatch.setattr("testbed.api.threading.active_count", lambda: 1)
    swept = api.sweep(file, {"codec": ["twobit"]}, out=tmp_path / "out")
    assert swept.varied == ("training.batch", "training.rounds")
    assert [(*point.settings.values(), point.seed) for point in jobs[0].points] == [
        ("8", "2", "twobit", 3), ("8", "2", "twobit", 5), ("16", "3", "twobit", 3), ("16", "3", "twobit", 5),
    ]  # fmt: skip
    monkeypatch.setattr("testbed.api.threading.active_count", lambda: 2)
    assert [row["run"] for row in api.sweep(file, out=tmp_path / "out", seeds=1, retry_failed=True).rows]
    assert commands[0][3:5] == ["sweep", str(file)] and "--retry-failed" in commands[0]


@for_each("jobs", [0, -1])
def test_a_sweep_has_at_least_one_run_at_a_time(jobs: int, tmp_path: Path) -> None:
    """None would wait for ever."""
    with pytest.raises(ScenarioError, match=f"jobs: {jobs}: at least 1"):
        api.sweep(SMALL, {"codec": ["none"]}, jobs=jobs, out=tmp_path / "sweep")


def test_a_run_without_its_data_leaves_nothing(tmp_path: Path) -> None:
    data = {"training.data": {"kind": "mnist", "folder": str(tmp_path / "none")}}
    with pytest.raises(ScenarioError, match="does not exist"):
        api.run(api.load(SMALL, set=data), out=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def test_values_of_a_grid_may_come_in_anything_that_is_iterated_over() -> None:
    grid: Any = {"training.batch": range(2, 4), "name": ("a, b",)}
    assert api._texts(grid) == {"training.batch": ["2", "3"], "name": ['"a, b"']}


def test_what_is_compared_is_a_list_of_runs() -> None:
    for given, says in (("ra", r"got 'ra'; write \['ra'\]"), ([], "got an empty one")):
        with pytest.raises(ScenarioError, match=says):
            api.compare(given)
    with pytest.raises(ScenarioError, match="target: 95 is no accuracy between 0 and 1"):
        api.compare(["ra"], target=95)


def test_trackers_are_a_list(tmp_path: Path) -> None:
    calls: tuple[Any, ...] = (api.run, lambda given, **how: api.sweep(given, grid={"codec": ["none"]}, **how))
    for call in calls:
        with pytest.raises(ScenarioError, match=r"log: expected a list of trackers, got 'mlflow'; write \['mlflow'\]"):
            call(SMALL, out=tmp_path / "out", log="mlflow")


def test_an_interrupted_sweep_ends_before_the_interrupt_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it takes to write its results; subprocess.run would kill it after a quarter of a second."""
    code = (
        "import pathlib, signal, sys, time\n"
        "def end(*_):\n    time.sleep(0.4); pathlib.Path('results').touch(); sys.exit(130)\n"
        "signal.signal(signal.SIGINT, end); pathlib.Path('ready').touch(); time.sleep(30)"
    )

    class Interrupted(subprocess.Popen[str]):
        def communicate(self, *of: Any, **how: Any) -> Any:
            if not (tmp_path / "ready").exists():
                while not (tmp_path / "ready").exists():
                    time.sleep(0.01)
                raise KeyboardInterrupt
            return super().communicate(*of, **how)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("subprocess.Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        api._run_to_its_end([sys.executable, "-c", code])
    assert (tmp_path / "results").exists()


def test_a_sweep_whose_process_is_killed_is_no_sweep(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(api, "_run_to_its_end", lambda command: (-9, ""))
    job: Any = SimpleNamespace(directory=tmp_path, jobs=None, cluster="", retry_failed=False)
    with pytest.raises(RunFailed, match="ended by SIGKILL; finished runs are in"):
        api._as_command(job, Path("s.yaml"), [], None, None, ())


@for_each("kind", [TestbedError, ScenarioError, CapabilityError])
def test_the_process_of_a_sweep_raises_what_the_sweep_would(
    kind: type[TestbedError], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(api, "_run_to_its_end", lambda command: (kind.exit_code, "testbed: plan.json: damaged\n"))
    job: Any = SimpleNamespace(directory=tmp_path, jobs=None, cluster="", retry_failed=False)
    with pytest.raises(TestbedError, match=r"^plan\.json: damaged$") as raised:
        api._as_command(job, Path("s.yaml"), [], None, None, ())
    assert raised.type is kind


def test_runs_are_compared(finished: api.Run, tmp_path: Path) -> None:
    other = api.run(api.load(SMALL, set={"codec": "fp16"}), out=tmp_path / "fp16", progress=False)
    comparison = api.compare([finished, other.path])
    frame = comparison.frame()
    assert frame["wan_bytes"].tolist()[0] == 2 * frame["wan_bytes"].tolist()[1]
    assert comparison.figure().axes and r"\toprule" in comparison.latex() and "fp16" in comparison._repr_html_().lower()


def test_a_comparison_shows_the_target_of_the_first_runs_scenario(finished: api.Run) -> None:
    training = {**finished.plan["training"], "target_accuracy": 0.6}
    first = replace(finished, plan={**finished.plan, "training": training})
    for target, told in ((None, "target 60 %"), (0.7, "target 70 %")):
        over_time = api.compare([first, finished], target).figure().axes[0]
        assert told in over_time.get_legend_handles_labels()[1]


def test_networks_and_traces_by_name() -> None:
    assert len(api.topology("hmc4").topology.data_centers) == 4
    assert len(api.topology("star", set={"data_centers": 3}).topology.data_centers) == 3
    assert len(api.trace("lte-drive").values) > 100


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
