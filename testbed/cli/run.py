"""Run a scenario: bring its network up, train, and write a run directory.

Ctrl-C, SIGTERM or the end of the terminal ends the run and keeps the results so far; a second Ctrl-C skips what can be
made later.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.cli.interrupts import Interrupts, take_interrupts
from testbed.cli.options import Outcome, add_cluster, add_log, add_scenario, read_jobs
from testbed.display import look
from testbed.errors import Diverged, ScenarioError

if TYPE_CHECKING:
    from analysis.load import StoredRun
    from testbed.display.page import Page
    from testbed.execution.session import Follower, HostProcess
    from testbed.plan.model import Plan
    from testbed.scenario import Scenario
    from testbed.scenario.jobs import ReadJobs

HELP = "run a scenario, and write a run directory"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_scenario(parser)
    parser.add_argument("--out", type=Path, metavar="DIR", help="run directory; default: a new one below runs/")
    parser.add_argument("--again", action="store_true", help="replace the finished run that --out holds")
    parser.add_argument(
        "--resume",
        type=Path,
        metavar="RUN",
        help="continue from the newest complete checkpoint of RUN, in a new run directory",
    )
    add_cluster(
        parser, "with --on cluster: use the machines of the Ray cluster at HOST:PORT; auto: the cluster of this machine"
    )
    add_log(parser)
    parser.add_argument(
        "--alone", action="store_true", help="also run each of several jobs by itself, to compare its rounds"
    )
    parser.add_argument("--view", action="store_true", help="open a page that follows the run, and stays until Ctrl-C")
    parser.add_argument("--quiet", action="store_true", help="show nothing until the summary, or the result as JSON")


def execute(arguments: argparse.Namespace) -> Outcome:
    from testbed.process_id import age_s

    with take_interrupts() as interrupts:
        return _execute(arguments, interrupts, time.monotonic() - age_s())


def _execute(arguments: argparse.Namespace, interrupts: Interrupts, begin_s: float) -> Outcome:
    if arguments.again and arguments.out is None:
        raise ScenarioError("--again: has no effect without --out; name the finished run with --out DIR")
    if arguments.cluster:
        arguments.overrides += [f"cluster.address={arguments.cluster}"]
    with ExitStack() as hosts, ExitStack() as pages:
        page = pages.enter_context(_page()) if arguments.view else None
        jobs, early = _read(arguments, hosts)
        if jobs.are_several:
            from testbed.cli.jobs import run_jobs

            return run_jobs(arguments, jobs, interrupts, begin_s, early)
        if arguments.alone:
            raise ScenarioError("--alone: has no effect on a scenario without 'jobs', which is alone; leave it out")
        return _run(arguments, jobs.jobs[0].scenario, interrupts, begin_s, early, page)


@contextmanager
def _page() -> Iterator[Page]:
    from testbed.display.page import Page

    with closing(Page()) as page:
        yield page


def _read(arguments: argparse.Namespace, hosts: ExitStack) -> tuple[ReadJobs, HostProcess | None]:
    """Read the scenario or its jobs. Meanwhile, start the host process of the back end that they seem to name."""
    from testbed.execution import session
    from testbed.shipped import likely_back_end

    kind = arguments.on or likely_back_end(arguments.scenario, otherwise="emulate")
    early = hosts.enter_context(session.early_host(kind))
    jobs = read_jobs(arguments)
    scenario = jobs.jobs[0].scenario
    if scenario.is_program or not session.same_host(kind, scenario.run.on):
        hosts.close()
        early = None  # the host of a program needs no torch, which ``early`` imports
        if not scenario.is_program:
            early = hosts.enter_context(session.early_host(scenario.run.on))
    return jobs, early


def _run(
    arguments: argparse.Namespace,
    scenario: Scenario,
    interrupts: Interrupts,
    begin_s: float,
    early: HostProcess | None,
    page: Page | None,
) -> Outcome:
    from testbed import launch
    from testbed.callbacks import LiveLog
    from testbed.display.progress import choose
    from testbed.execution.record import final_status
    from testbed.execution.session import INTERRUPTED
    from testbed.plan.build import build_plan
    from testbed.results.rundir import AlreadyDone
    from testbed.shipped import path_of

    plan = build_plan(scenario)
    if arguments.cluster and not plan.is_spread:
        raise ScenarioError(f"--cluster: {plan.title} runs on this machine only; add --on cluster")
    launch.check_before_training(scenario, plan)
    _check_resume(arguments, plan)
    followers: list[Follower] = [LiveLog(arguments.log)] if arguments.log else []
    followers += [page] if page else []
    try:
        text = path_of(arguments.scenario).read_bytes()
        run = launch.prepare(scenario, plan, out=arguments.out, text=text, again=arguments.again, early=early)
    except AlreadyDone as done:
        return _already_done(Path(str(done)), arguments.json)
    with final_status(run):
        if arguments.resume is not None:
            from testbed.execution.resume import take_over

            take_over(arguments.resume, run.path)
        display = choose(plan, as_json=arguments.json, quiet=arguments.quiet)
        execute = partial(launch.in_processes, early=early)
        outcome = launch.train(plan, run, display, execute=execute, followers=followers)
        interrupts.deferred = True
        outcome, stored = launch.finish(
            run, plan, outcome, **launch.since(begin_s), hurry=lambda: interrupts.count > 1, followers=followers
        )
    if outcome.status not in ("done", "reduced"):
        with suppress(OSError):  # nobody reads the output
            print("testbed: " + outcome.message.replace("\n", "\n         "), file=sys.stderr)
    code = 143 if outcome.exit_code == 130 and interrupts.terminated else outcome.exit_code
    if not arguments.json:
        with suppress(OSError, SystemExit):  # rich exits at a closed pipe; the exit code is that of the run
            _print_summary(stored, told=outcome.status not in ("done", "reduced"))
    if page and outcome.exit_code != INTERRUPTED.exit_code:
        interrupts.deferred = False
        page.stay()
    return (code, _result(run.path, code)) if arguments.json else code


def _check_resume(arguments: argparse.Namespace, plan: Plan) -> None:
    """Check, before anything is created, that a checkpoint of this job exists and will not be overwritten."""
    from testbed.execution import resume

    if arguments.resume is None:
        return
    resume.check_job(arguments.resume, plan)
    if arguments.out is not None and arguments.out.resolve() == arguments.resume.resolve():
        raise ScenarioError(f"--out {arguments.out}: is the run to be resumed; give another directory")


def _print_summary(run: StoredRun, *, told: bool = False) -> None:
    from testbed.display.summary import summary_of

    look.console().print(*summary_of(run, told=told), sep="\n")
    made = [name for name in ("figure.png", "result.json", "fidelity.json") if (run.path / name).is_file()]
    print(f"run directory: {run.path} ({', '.join(made)})")


def _result(path: Path, exit_code: int, **more: Any) -> dict[str, Any]:
    result = json.loads((path / "result.json").read_text())
    return {"kind": "result", "run": str(path), "exit_code": exit_code, **more, "result": result}


def _already_done(path: Path, as_json: bool) -> Outcome:
    from analysis.load import load_run
    from testbed.results.rundir import open_run

    code = Diverged.exit_code if open_run(path).status().state == "diverged" else 0
    if as_json:
        return code, _result(path, code, already_done=True)
    print(f"{path}: has been run already with the same plan; nothing to do (--again repeats it)")
    _print_summary(load_run(path))
    return code
