"""The testbed as a library: scenarios, runs, sweeps and comparisons as Python objects.

    import testbed

    scenario = testbed.load("scenarios/quickstart.yaml", set={"training.rounds": 20})
    run = testbed.run(scenario, on="simulate")
    run.result["accuracy"], run.tables["rounds"], run.figure()
    sweep = testbed.sweep(scenario, grid={"codec": ["none", "fp16"]}, seeds=3, on="simulate")
    sweep.frame()
    print(testbed.compare(sweep))
    testbed.compare([run, *sweep.runs])

The command line uses the same functions. Errors are the exceptions of ``testbed.errors``, with the command's texts.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from analysis import load as stored
from testbed import errors, launch
from testbed.callbacks import Callback, Callbacks, LiveLog, StopRun, live_logs
from testbed.display import progress as displays
from testbed.display.notebook import Widget, as_output, html_of
from testbed.errors import CapabilityError, ScenarioError
from testbed.execution.record import final_status
from testbed.execution.scripts import is_scripted
from testbed.execution.session import SessionResult
from testbed.plan.build import build_plan
from testbed.results import COMPLETED
from testbed.results.rundir import AlreadyDone
from testbed.results.sweep_index import is_sweep
from testbed.scenario import Scenario
from testbed.scenario import load as read
from testbed.scenario import loads as read_text
from testbed.scenario.load import moved
from testbed.scenario.overrides import python_value, texts_of
from testbed.scenario.reading.axes import PerTier, Technique
from testbed.scenario.reading.declared import resolved
from testbed.scenario.reading.section import as_yaml
from testbed.scenario.rules import violations_of
from testbed.settings.series import Series
from testbed.target import Target

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from analysis.advise.advice import Advice as StoredAdvice
    from analysis.advise.confirm import Confirmed
    from analysis.sweeps.stored import SweepComparison as StoredComparison
    from testbed.execution.sweep import SweepJob
    from testbed.plan.jobs import Job
    from testbed.preset import Preset
    from testbed.scenario.look_up import NetworkDescription
    from topologies.traces import Trace

__all__ = [
    "Advice",
    "Callback",
    "Comparison",
    "Run",
    "Scenario",
    "StopRun",
    "Sweep",
    "SweepComparison",
    "advise",
    "compare",
    "load",
    "open_run",
    "presets",
    "run",
    "run_jobs",
    "sweep",
    "topology",
    "trace",
]

_KINDS = {kind.exit_code: kind for kind in (ScenarioError, CapabilityError, errors.NetworkMismatch)}
Settings = Mapping[str, Any]
"""Values by path, as after ``--set``: ``{"training.rounds": 20, "links[*].rate": "5 Mbit/s", "codec": "fp16"}``."""


def load(
    source: str | Path | Settings | Scenario,
    set: Settings | None = None,  # noqa: A002 - as --set
    *,
    on: str | None = None,
    allow_code: bool = False,
) -> Scenario:
    """Return a validated scenario. Raise ``ScenarioError`` with every problem found.

        >>> scenario = testbed.load("quickstart", {"training.rounds": 10, "links[*].rate": "5 Mbit/s"}, on="simulate")
        >>> scenario.training.rounds
        10

    source      path of a scenario file, name of a shipped scenario (``"quickstart"``), a mapping with the content of a
                scenario (whose values may be sections of ``testbed.scenario.schema``), or a scenario
    set         values that replace those of the file; files of code (``./mine.py:Mine``) are relative to the working
                directory
    on          back end instead of the scenario's own: ``emulate``, ``simulate``, ``local``, ``exact`` or ``cluster``
    allow_code  whether a file outside the working directory may name code, which is then imported
    """
    changes = texts_of({path: _from_here(_without_sections(value)) for path, value in (set or {}).items()})
    if isinstance(source, Mapping | Scenario):
        return read_text(as_yaml(python_value(_without_sections(source), "")), "scenario", changes, Path.cwd(), on)
    return read(source, changes, on=on, allow_code=allow_code)


def _without_sections(value: Any) -> Any:
    """Return a value with all sections in it turned into mappings."""
    if isinstance(value, Technique | Scenario):
        return value.resolved()
    if isinstance(value, PerTier):
        return _without_sections(dict(value))
    if is_dataclass(value) and not isinstance(value, Series):
        return resolved(value)
    if isinstance(value, Mapping):
        return {key: _without_sections(entry) for key, entry in value.items()}
    return [_without_sections(entry) for entry in value] if isinstance(value, list | tuple) else value


_CODE = re.compile(r"(?![a-z0-9_]+: )[^{}\[\]]+\.py:[A-Za-z_][A-Za-z0-9_]*")  # a whole text FILE.py:Class


def _from_here(value: Any) -> Any:
    """Return a value of ``set`` in which paths of code are absolute."""
    if isinstance(value, str) and _CODE.fullmatch(value):
        return str(Path.cwd() / value)
    if isinstance(value, Mapping):
        return {key: _from_here(entry) for key, entry in value.items()}
    return [_from_here(entry) for entry in value] if isinstance(value, list | tuple) else value


class Run(stored.StoredRun):
    """A run: ``path``, ``plan``, ``manifest``, ``result``, ``fidelity``, ``status``; ``tables`` as pandas frames."""

    def figure(self) -> Figure:
        """Return the figure of the run: accuracy, time per round and links over time."""
        from analysis.figures.run import draw

        return as_output(draw(self))

    def __repr__(self) -> str:
        return f"<Run {self.name}: {self.status.state}, {self.path}>"

    def __str__(self) -> str:
        from testbed.display.summary import as_text, summary_of

        return as_text(summary_of(self))

    def _repr_html_(self) -> str:
        from testbed.display.summary import summary_of

        return html_of(*summary_of(self), picture=self.path / "figure.png")

    def view(self, height: int = 760) -> Widget:
        """Return a notebook widget with the page that plays the run back. ``height`` is in pixels."""
        from analysis.view.source import saved

        return Widget(saved([self.path]), height)


def open_run(path: str | Path) -> Run:
    """Return the run in a run directory. Raise ``ScenarioError`` if ``path`` is not one."""
    found = stored.load_run(Path(path))
    return Run(**{field.name: getattr(found, field.name) for field in fields(stored.StoredRun)})


def run(  # noqa: PLR0913 - what the command has
    scenario: Scenario | str | Path | Settings,
    set: Settings | None = None,  # noqa: A002 - as --set
    *,
    on: str | None = None,
    out: str | Path | None = None,
    progress: bool = True,
    again: bool = False,
    log: Sequence[str] = (),
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Run a scenario to its end and return the run.

        >>> fewer = {"training.rounds": 10}
        >>> run = testbed.run("quickstart", fewer, on="simulate", out=folder / "run", progress=False)
        >>> run.status.state, run.result["rounds"]
        ('done', 10)

    A simulation runs in this process, except for a user's script, which might crash the process; other runs start
    processes. Ctrl-C (in Jupyter: interrupt) ends the run, writes the results so far, and raises ``KeyboardInterrupt``.

    scenario   a scenario, or a source of one as for ``load``
    set        values that replace those of the scenario
    on         back end instead of the scenario's own
    out        run directory, by default a new one below ``runs``. If it holds a finished run of an equal Plan, that run
               is returned
    progress   whether to show a live display
    again      whether to repeat a finished run in ``out``
    log        experiment trackers that get the results while they arise: ``tensorboard``, ``wandb``, ``mlflow``
    callbacks  followers of the run; a callback that raises ``StopRun`` ends it with the status ``interrupted``

    Raise ``ScenarioError`` if the scenario cannot run on this back end, ``CapabilityError`` if the machine cannot run
    it, and ``RunFailed`` if a node or a callback fails; results are kept in ``out``. If the training diverges, the run
    is returned with the status ``diverged``.
    """
    begin_s = time.monotonic()
    if set or not isinstance(scenario, Scenario):
        scenario = load(scenario, set, on=on)
    scenario = moved(scenario, on)
    if found := violations_of(scenario):  # a scenario made by calling its class has not been checked as a whole
        raise ScenarioError([*map(str, found)])
    plan = build_plan(scenario)
    launch.check_before_training(scenario, plan)
    called = Callbacks(callbacks, open_run)
    followers = (*([called] if callbacks else []), *([LiveLog(log)] if log else []))
    try:
        directory = launch.prepare(scenario, plan, out=Path(out) if out else None, again=again)
    except AlreadyDone as done:
        return open_run(str(done))
    display = displays.choose(plan, as_json=False, quiet=not progress)
    here = not plan.facilities.has_processes and not is_scripted(plan)
    execute = launch.in_this_process if here else launch.in_processes
    with final_status(directory):
        outcome = launch.train(plan, directory, display, execute, followers)
        outcome, _ = launch.finish(directory, plan, outcome, **launch.since(begin_s), followers=followers)
    _raise_if_failed(outcome, directory.path, called)
    return open_run(directory.path)


def run_jobs(
    file: str | Path,
    set: Settings | None = None,  # noqa: A002 - as --set
    *,
    on: str | None = None,
    out: str | Path | None = None,
    progress: bool = True,
    again: bool = False,
    alone: bool = False,
) -> dict[str, Run]:
    """Run the jobs of a file on one network, and return the run of each by its name.

        >>> fewer = {"jobs.star.training.rounds": 20}
        >>> jobs = testbed.run_jobs("shared/two-jobs", fewer, out=folder / "jobs", progress=False)
        >>> {name: run.result["rounds"] for name, run in jobs.items()}
        {'star': 20, 'ring': 20}

    Arguments are those of ``load`` and ``run``. With ``alone``, each job also runs by itself, into ``OUT/alone/NAME``,
    which ``open_run`` opens. Errors are those of ``run``. If jobs fail, the error of the first is raised after all jobs
    have ended.
    """
    from testbed import launch_jobs
    from testbed.scenario.jobs import load_jobs
    from testbed.shipped import path_of

    begin_s = time.monotonic()
    found = load_jobs(file, texts_of(dict(set or {})), on=on)
    if not found.are_several:
        raise ScenarioError(f"{file}: has no 'jobs'; testbed.run runs it")
    text = path_of(file).read_bytes()
    prepared = launch_jobs.prepare(found, out=Path(out) if out else None, text=text, again=again)
    execute = launch_jobs.execution_of(prepared.jobs)

    def carry_out(begun: launch_jobs.PreparedJobs, name: str) -> list[SessionResult]:
        def display_of(job: Job) -> displays.Display:
            return displays.choose_for_job(job.plan, name or job.name, as_json=False, quiet=not progress)

        with launch_jobs.final_statuses(begun.runs):
            outcomes = launch_jobs.train(begun, display_of, execute)
            return launch_jobs.finish(begun, outcomes, **launch.since(begin_s))

    outcomes = [] if prepared.are_done else carry_out(prepared, "")
    if alone and not any(outcome.status == "interrupted" for outcome in outcomes):
        outcomes += launch_jobs.run_alone(prepared, carry_out).values()
    if outcomes:
        launch_jobs.write_summary(prepared.directory)
    for outcome in outcomes:
        _raise_if_failed(outcome, prepared.directory, Callbacks((), open_run))
    return {job.name: open_run(each.path) for job, each in zip(prepared.jobs, prepared.runs, strict=True)}


def _raise_if_failed(outcome: SessionResult, path: Path, called: Callbacks) -> None:
    if outcome.status == "interrupted" and outcome.exit_code:  # without an exit code, a callback stopped the run
        raise KeyboardInterrupt(f"the results so far are in {path}") from called.error
    if outcome.status not in (*COMPLETED, "interrupted"):
        raise _KINDS.get(outcome.exit_code, errors.RunFailed)(
            f"{outcome.message} (run directory: {path})"
        ) from called.error
    if called.error is not None:  # raised by on_end, after the status had been written
        raise errors.RunFailed(f"{called.message} (run directory: {path})") from called.error


@dataclass(frozen=True)
class Sweep:
    """The runs of a sweep. ``rows`` holds one mapping per run, with its settings and results."""

    directory: Path
    rows: Sequence[Mapping[str, Any]]
    varied: tuple[str, ...]

    @property
    def runs(self) -> list[Run]:
        """The finished runs, in the order of the rows."""
        done = (row for row in self.rows if row["status"] in COMPLETED)
        return [open_run(self.directory / "runs" / str(row["run"])) for row in done]

    def frame(self) -> pd.DataFrame:
        """Return one row per run: settings, seed, status, accuracy, times in s, traffic in bytes."""
        import pandas as pd

        return pd.DataFrame(self.rows)

    def _repr_html_(self) -> str:
        from analysis.sweeps.points import cases_of, points_of
        from testbed.display.summary import sweep_table

        return html_of(sweep_table(cases_of(points_of(self.rows, self.varied))))


def sweep(  # noqa: PLR0913 - what the command has
    scenario: Scenario | str | Path | Settings,
    grid: Mapping[str, Sequence[Any]] | None = None,
    *,
    techniques: str | Sequence[str] = (),
    tune: str = "",
    trials: int = 8,
    seeds: int | Sequence[int] | None = None,
    on: str | None = None,
    out: str | Path | None = None,
    jobs: int | None = None,
    log: Sequence[str] = (),
    cluster: str = "",
    retry_failed: bool = False,
) -> Sweep:
    """Run all combinations of the values in ``grid``, each with ``seeds`` seeds. Finished runs are not repeated.

    If a scenario's file has a section ``sweep``, ``grid`` and ``seeds`` replace its values, as with the command.

    grid          values by path: ``{"codec": ["none", "fp16"], "links[*].rate": ["5 Mbit/s", "20 Mbit/s"]}``
    techniques    names of presets, or ``"all"``. Each replaces the techniques of the scenario. Presets that cannot run
                  on the scenario are left out, and ``testbed.compare`` says why
    tune          an option of the optimizer and its range: ``"learning_rate=3e-4..1e-1"``. Its best value is searched
                  for each point, before the runs with the point's seeds
    trials        runs of each search
    seeds         number of seeds, of which the first is the scenario's and each other one is larger by 1; or a list of
                  seeds
    on            back end instead of the scenario's own
    out           directory of the sweep, by default ``sweeps/NAME``
    jobs          number of runs at the same time; by default the number of cores for simulations, else 1
    log           experiment trackers that get the results while they arise, in each run's directory
    cluster       ``HOST:PORT`` of a Ray cluster whose machines do the runs; ``auto``: the cluster of this machine
    retry_failed  whether to run failed points again; interrupted points always run again

    Raise ``ScenarioError`` for the first combination that is refused, before anything runs, and ``CapabilityError`` if
    the cluster cannot be joined or lacks something that a run needs. A run that fails becomes a row with that status.
    """
    from testbed.execution import sweep as sweeps
    from testbed.execution.sweep_points import TechniquePoints, points_of, points_of_techniques
    from testbed.scenario.sweep import from_options, joined, read_sweep, technique_names

    if jobs is not None and jobs < 1:
        raise ScenarioError(f"jobs: {jobs}: at least 1")
    options = [f"{path}={','.join(texts)}" for path, texts in _texts(grid or {}).items()]
    chosen = seeds if seeds is None or isinstance(seeds, int) else tuple(seeds)
    wanted = from_options(options, [], chosen)
    names = techniques if isinstance(techniques, str) else ",".join(map(_from_here, techniques))

    def points(file: Path, allow_code: bool = False) -> TechniquePoints:
        if not names:
            return TechniquePoints(wanted, points_of(file, wanted, on, allow_code), {})
        return points_of_techniques(technique_names(names), file, wanted, on, allow_code)

    if isinstance(scenario, str | Path):
        source = Path(scenario)
        file, section = read_sweep(source)
        wanted = joined(section, wanted)
        found = points(file)
        directory = Path(out or Path("sweeps") / found.points[0].plan.name)
    else:
        scenario = scenario if isinstance(scenario, Scenario) else load(scenario, on=on)
        directory = Path(out or Path("sweeps") / scenario.name)
        directory.mkdir(parents=True, exist_ok=True)
        unchecked = directory / "refused.yaml"  # a refused scenario must not replace that of an earlier sweep
        unchecked.write_text(scenario.to_yaml(), encoding="utf-8")
        found = points(unchecked, allow_code=True)
        source = file = unchecked.replace(directory / "scenario.yaml")
    job = sweeps.SweepJob(
        directory,
        file,
        found.sweep,
        found.points,
        jobs,
        retry_failed,
        live_logs(log),
        cluster,
        found.left_out,
    )
    # a process with threads must not be forked: Jupyter has threads, and so has Ray
    if threading.active_count() > 1 or cluster:
        as_text = "".join(f"{seed}," for seed in chosen) if isinstance(chosen, tuple) else chosen
        asked = {"techniques": names, "tune": tune, "seeds": as_text, "on": on, "log": ",".join(log)}
        _as_command(job, source, asked | ({"trials": trials} if tune else {}), options)
        job = _tuned(job, on, tune, trials)  # takes the values that the command has found
        rows = sweeps.table(job)
    else:
        job = _tuned(job, on, tune, trials)
        rows = sweeps.execute(job, lambda point, state: None)
    return Sweep(directory, rows, job.sweep.varied())


def _tuned(job: SweepJob, on: str | None, tune: str, trials: int) -> SweepJob:
    """Return the sweep with the best values that a search finds; unchanged if ``tune`` is empty."""
    if not tune:
        return job
    from testbed.execution.sweep_points import maker
    from testbed.execution.tuning import tuned
    from testbed.scenario.sweep import tuning_range

    def warn(text: str) -> None:
        warnings.warn(text, stacklevel=3)

    make = maker(job.scenario, on, allow_code=True)
    return tuned(job, tuning_range(tune, trials), make, lambda line: None, warn)


def _texts(grid: Mapping[str, Sequence[Any]]) -> dict[str, list[str]]:
    """Return the values of a grid as texts that may be joined by commas."""
    written = {
        path: [texts_of({path: _from_here(value)}) for value in _listed(path, values)] for path, values in grid.items()
    }
    texts = {path: [text.partition("=")[2] for each in some for text in each] for path, some in written.items()}
    return {path: [_with_commas_quoted(text) for text in some] for path, some in texts.items()}


def _listed(path: str, values: Any) -> list[Any]:
    """Return the values of one path of a grid as a list. Raise ``ScenarioError`` if there are none, or no list."""
    if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
        raise ScenarioError(f"grid: {path}: expected a list of values, got {values!r}; write [{values!r}]")
    listed = list(values)
    if not listed:
        raise ScenarioError(f"grid: {path}: the list of values is empty; leave the path out, or give it values")
    return listed


def _with_commas_quoted(text: str) -> str:
    from testbed.scenario.sweep import split_values

    return text if split_values(f"{text},x") == [text.strip(), "x"] else json.dumps(text, ensure_ascii=False)


_COMMAND = (
    "import signal, sys; from testbed.processes.child import die_with_parent; die_with_parent(signal.SIGTERM); "
    "from testbed.cli.main import main; sys.exit(main())"
)


def _as_command(job: SweepJob, source: Path, asked: Mapping[str, str | int | None], options: Iterable[str]) -> None:
    """Run the sweep by its command. ``asked`` has options that it takes once, ``options`` the texts after ``--set``."""
    words = [word for option in options for word in ("--set", option)]
    words += [word for name, value in asked.items() if value for word in (f"--{name}", str(value))]
    words += ["--jobs", str(job.jobs)] if job.jobs else []
    words += ["--cluster", job.cluster] if job.cluster else []
    words += ["--retry-failed"] if job.retry_failed else []
    command = [
        sys.executable,
        "-c",
        _COMMAND,
        "sweep",
        str(source),
        "--out",
        str(job.directory),
        "--json",
        "--allow-code",
        *words,
    ]
    code, said = _run_to_its_end(command)
    if code < 0:
        name = signal.Signals(-code).name
        raise errors.RunFailed(f"the process of the sweep was ended by {name}; finished runs are in {job.directory}")
    if code not in (0, errors.RunFailed.exit_code):
        raise _KINDS.get(code, errors.TestbedError)(said.strip().removeprefix("testbed: "))


def _run_to_its_end(command: Sequence[str]) -> tuple[int, str]:
    """Run a command and return its exit code and its error output.

    An interrupt is passed on to the command, and raised when the command has ended. The command has its own process
    group: otherwise a terminal would interrupt it as well, and a second interrupt ends it before it has written its
    results. When this process or thread ends for whatever reason, the command is asked to end.
    """
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, process_group=0
    )
    interrupt: KeyboardInterrupt | None = None
    while True:
        try:
            _, said = child.communicate()
            break
        except KeyboardInterrupt as error:
            interrupt = error
            child.send_signal(signal.SIGINT)
        except BaseException:
            child.terminate()
            child.wait()
            raise
    if interrupt is not None:
        raise interrupt
    return child.returncode, said


@dataclass(frozen=True)
class Comparison:
    """Several runs side by side. Times to ``target`` are compared; by default, the target of the first run."""

    runs: Sequence[stored.StoredRun]
    target: Target | None = None

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One mapping per run: accuracy, times, WAN bytes, waiting share, speed-up against the first run."""
        from analysis.compare import comparison

        return comparison(list(self.runs), self.target)

    def frame(self) -> pd.DataFrame:
        import pandas as pd

        return pd.DataFrame(self.rows)

    def figure(self) -> Figure:
        """Return accuracy over time and over WAN bytes, and the time per round."""
        from analysis.compare import target_of
        from analysis.figures.compare import draw

        return as_output(draw(list(self.runs), target_of(self.runs, self.target)))

    def latex(self) -> str:
        """Return the rows as a table for the LaTeX package booktabs."""
        from analysis.compare import as_latex

        return as_latex(self.rows)

    def _repr_html_(self) -> str:
        from testbed.display.summary import comparison_table

        return html_of(comparison_table(self.rows))


@dataclass(frozen=True)
class SweepComparison:
    """The points of a sweep compared with a base, seed by seed: ``testbed.compare("codecs", base={"codec": "none"})``.

    conclusion  sentences; the first names the winner, its interval and the number of seeds that decide it
    rows        one mapping per run
    """

    stored: StoredComparison

    @property
    def conclusion(self) -> list[str]:
        return self.stored.conclusion

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [dict(row) for row in self.stored.rows]

    def frame(self) -> pd.DataFrame:
        """Return one row per point: medians over seeds, and ratios to the base with their 95 % intervals."""
        from analysis.sweeps.output import by_point

        return by_point(self.stored)

    def figure(self) -> Figure:
        """Return a figure: accuracy over time and WAN bytes with spread, ratios with intervals, and time per round."""
        from analysis.figures.sweep import draw

        return as_output(draw(self.stored))

    def latex(self) -> str:
        """Return one row per point as a table for the LaTeX package booktabs."""
        from analysis.sweeps.output import as_latex

        return as_latex(self.stored)

    def html(self) -> str:
        """Return the page that ``testbed report`` makes of the sweep."""
        from analysis.report.sweep import page

        return page(self.stored)

    def __repr__(self) -> str:
        return f"<SweepComparison: {self.conclusion[0]}>"

    def __str__(self) -> str:
        return "\n".join(self.conclusion)

    def _repr_html_(self) -> str:
        from testbed.display.summary import sweep_table

        return html_of(sweep_table(self.stored.cases), *self.conclusion)


@overload
def compare(  # type: ignore[overload-overlap]  # to Python, a text is a list of texts
    runs: Sweep | str | Path,
    target: float | str | None = None,
    base: Settings | None = None,
) -> SweepComparison: ...
@overload
def compare(runs: Iterable[stored.StoredRun | str | Path], target: float | str | None = None) -> Comparison: ...
def compare(
    runs: Iterable[stored.StoredRun | str | Path] | Sweep | str | Path,
    target: float | str | None = None,
    base: Settings | None = None,
) -> Comparison | SweepComparison:
    """Compare several runs, or the points of a sweep.

    runs    a list of runs or run directories, of which the first is the base of speed-ups; or a sweep or its directory
    target  the accuracy or loss for times to target: ``0.95``, ``"95 %"`` or ``"loss=2.5"``; by default the target of
            the first run
    base    only for a sweep: the settings of the point with which all others are compared; by default the first point

    Raise ``ScenarioError`` if there is no run.
    """
    try:
        wanted = None if target is None else Target.parsed(str(target))
    except ValueError as error:
        raise ScenarioError(f"compare: target: {error}") from error
    directory = runs.directory if isinstance(runs, Sweep) else runs
    if isinstance(directory, str | Path) and is_sweep(Path(directory)):
        from analysis.sweeps.stored import compare_sweep, load_sweep

        asked = dict(text.split("=", 1) for text in texts_of(base or {}))
        return SweepComparison(compare_sweep(load_sweep(Path(directory)), wanted, asked))
    if isinstance(directory, str | Path | stored.StoredRun):
        named = str(directory)
        raise ScenarioError(
            f"compare: expected a sweep, or a list of runs or run directories, got {named!r}; write [{runs!r}]"
        )
    if base:
        raise ScenarioError("compare: base: is only for a sweep; among runs, the first one is the base")
    runs = list(directory)
    if not runs:
        raise ScenarioError("compare: expected a list of runs or run directories, got an empty one")
    return Comparison([each if isinstance(each, stored.StoredRun) else open_run(each) for each in runs], wanted)


@dataclass(frozen=True)
class Advice:
    """The techniques that suit a scenario, ranked: ``testbed.advise("my.yaml")``.

    ``conclusion`` holds sentences; the first names the best technique and its 90 % interval.
    """

    stored: StoredAdvice

    @property
    def conclusion(self) -> list[str]:
        from analysis.advise.conclusion import conclusion

        return conclusion(self.stored)

    def frame(self) -> pd.DataFrame:
        """Return one row per technique: outcome, value with its 90 % interval, seconds, bytes, rounds and seeds."""
        from analysis.advise.output import frame

        return frame(self.stored)

    def figure(self) -> Figure:
        """Return a figure: the ranking with its intervals, and each technique's time against the bytes it sends."""
        from analysis.figures.advice import draw

        return as_output(draw(self.stored))

    def scenarios(self, count: int = 3) -> dict[str, Scenario]:
        """Return the scenarios of the best techniques, by name, ready for ``testbed.run``."""
        return self.stored.scenarios(count)

    def confirm(
        self, count: int = 3, *, on: str | None = None, out: str | Path | None = None, again: bool = False
    ) -> list[Confirmed]:
        """Run the best techniques to the end. Return each with the value that its run reached, best advised first.

        count  number of techniques to run
        on     back end instead of the scenario's own
        out    folder of the run directories, by default ``advice/NAME``
        again  whether to repeat finished runs in ``out``; otherwise finished runs of equal Plans are used
        """
        from analysis.advise.confirm import Confirmed, refuse_what_runs_do_not_tell, value_of
        from analysis.advise.files import file_name

        advice = self.stored
        refuse_what_runs_do_not_tell(advice)
        folder = Path(out or Path("advice") / advice.name)
        found = []
        for place, row in enumerate(advice.ranked[:count], 1):
            path = folder / f"{place}-{file_name(row.name)}"
            done = run(moved(advice.scenario(row), on), out=path, progress=False, again=again)
            assert done.result is not None, path
            found.append(Confirmed(row, value_of(advice.goal, done.result)))
        return found

    def __repr__(self) -> str:
        return f"<Advice on {self.stored.name}: {self.conclusion[0]}>"

    def __str__(self) -> str:
        return "\n".join(self.conclusion)

    def _repr_html_(self) -> str:
        from testbed.display.summary import advice_table

        return html_of(advice_table(self.stored), *self.conclusion)


def advise(  # noqa: PLR0913 - what the command has
    scenario: Scenario | str | Path | Settings,
    goal: str | None = None,
    *,
    least: str = "time",
    require: Sequence[str] = (),
    techniques: Sequence[str] | None = None,
    prices: str | Path | None = None,
    budget_s: float = 120.0,
    simulations: int | None = None,
    jobs: int | None = None,
    tune: str | None = None,
    trials: int = 4,
) -> Advice:
    """Simulate the techniques that a scenario could use, and rank them with intervals.

    scenario     a scenario, or a source of one as for ``load``
    goal         the goal to reach: ``"accuracy=0.9"``; by default the scenario's target accuracy
    least        the measure to minimise on the way to the goal: ``time``, ``bytes`` over the WAN, or ``money``
    require      constraints: ``no-udp`` (no unreliable datagrams), ``fp32`` (tensors travel uncompressed), ``points=1``
                 (accuracy at most one point below that of the scenario's own technique)
    techniques   names of presets; by default all
    prices       a CSV file with the costs of transfers and machines, for ``least="money"``
    budget_s     seconds that the advice may take
    simulations  number of simulations instead of ``budget_s``, which gives the same answer on every machine
    jobs         simulations at the same time; by default the number of cores, or 1 if this process has threads
    tune         an option of the optimizer that is searched for each technique: ``"learning_rate=3e-4..1e-1"``
    trials       runs of each search

    Raise ``ScenarioError`` if the goal is invalid, or if a simulation can say nothing about the scenario.
    """
    from analysis.advise import advising
    from analysis.advise.budget import Seconds, Simulations
    from analysis.advise.techniques import additions
    from analysis.advise.techniques import techniques as chosen

    budget = Seconds(budget_s) if simulations is None else Simulations(simulations)
    whole = scenario if isinstance(scenario, Scenario) else load(scenario, on="simulate")
    text = whole.to_yaml()

    def read_it(settings: Sequence[str], on: str | None) -> Scenario:
        return read_text(text, "scenario", settings, Path.cwd(), on)

    words = advising.Words(goal, least, require, jobs, Path(prices) if prices else None, tune, trials)
    wish = advising.wish(whole, words)
    names = None if techniques is None else ",".join(techniques)
    further = additions(whole) if techniques is None else {}
    return Advice(advising.advise(read_it, chosen(names, whole), wish, budget, additions=further))


def presets() -> Mapping[str, Preset]:
    """Return all techniques that ``technique: NAME`` can choose, with the settings of each.

    >>> testbed.presets()["hfa"].settings
    {'sync': {'kind': 'hfa', 'k1': 5, 'k2': 4}}
    """
    from testbed.scenario.presets import presets as known

    return known()


def topology(name: str, set: Settings | None = None, allow_code: bool = False) -> NetworkDescription:  # noqa: A002
    """Return a network by name or file, as ``topology: {use: NAME}`` reads it. ``allow_code`` is as in ``load``."""
    from testbed.scenario.look_up import network

    return network(name, texts_of(set or {}), allow_code)


_OF_READING = {
    "what": "what",
    "format": "format",
    "unit": "unit",
    "time_unit": "time_unit",
    "step": "step_s",
    "from": "source",
    "to": "target",
    "columns": "columns",
}


def trace(name: str, set: Settings | None = None) -> Trace:  # noqa: A002 - as in ``load``
    """Return a trace of the library, or of a file, whose format is detected.

    set  how to read the file: ``what`` is the quantity (``rate``, ``delay`` or ``loss``), by default the rate if the
         file has several; the others are keys that a scenario may write beside ``file``: ``format``, ``unit``,
         ``time_unit``, ``step``, ``from``, ``to``, ``columns``
    """
    from testbed.units import UnitError, parse_duration
    from topologies.library import find_trace
    from topologies.traces import Reading, read_trace

    path, what = find_trace(name)
    given = {"what": what, **(set or {})}
    if unknown := [key for key in given if key not in _OF_READING]:
        raise ScenarioError(f"trace: set: '{unknown[0]}' is not one of {', '.join(_OF_READING)}")
    if isinstance(given.get("step"), str):
        try:
            given["step"] = parse_duration(given["step"])
        except UnitError as error:
            raise ScenarioError(f"trace: set: step: {error}") from error
    if "columns" in given:
        given["columns"] = tuple(given["columns"].items())
    return read_trace(path, Reading(**{_OF_READING[key]: value for key, value in given.items()}))
