"""The run directory before and after a run on any back end: claims it, and afterwards writes tables and the result."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from emulation.exact.command import GUEST_START
from testbed.errors import Diverged, TestbedError, of_os
from testbed.execution import devices, exact
from testbed.execution.session import SessionResult
from testbed.plan.model import Plan, to_json
from testbed.results import atomic, manifest, rundir, summary
from testbed.results.job_index import neighbours
from testbed.results.rundir import RunDirectory
from testbed.results.summary import Ending

if TYPE_CHECKING:
    import pandas as pd


def prepare(
    path: Path, plan: Plan, *, scenario: bytes, resolved: str, capabilities: Mapping[str, Any], again: bool = False
) -> RunDirectory:
    """Claim the directory and write everything known before the run. Raises the errors of ``rundir.claim``.

    scenario, resolved  the scenario as written, and with its defaults
    capabilities        what the probe found and the back end chose
    """
    text = to_json(plan)
    sha256 = sha256_of_plan(plan)
    run = rundir.claim(path, sha256, again)
    with final_status(run):
        _describe(run, plan, text, scenario, resolved, capabilities)
        run.set_status("running", sha256)
    return run


def sha256_of_plan(plan: Plan) -> str:
    """Return a SHA-256 that is equal for equal Plans."""
    return summary.sha256_of(msgspec.json.decode(to_json(plan)))


@contextmanager
def final_status(run: RunDirectory, cause: str = "") -> Iterator[None]:
    """If the block raises an error, set the run's final status with its message; see ``rundir.end_unforeseen``.

    An ``OSError`` about an unusable path becomes a ``TestbedError``. ``cause``: why the run had already failed.
    """
    try:
        yield
    except BaseException as error:
        ours = (of_os(error, run.path) if isinstance(error, OSError) else None) or error
        status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        message = str(ours) if isinstance(ours, TestbedError) else f"{type(ours).__name__}: {ours}"
        with suppress(OSError, TestbedError):  # the directory is gone or read-only; the raised error gives the cause
            rundir.end_unforeseen(run, status, "\n".join(filter(None, dict.fromkeys((cause, message)))))
        if ours is not error:
            raise ours from error
        raise


def _describe(
    run: RunDirectory, plan: Plan, text: bytes, scenario: bytes, resolved: str, capabilities: Mapping[str, Any]
) -> None:
    now = GUEST_START if plan.is_exact else datetime.now(UTC)
    about = manifest.describe(seed=plan.seed, argv=sys.argv, capabilities=capabilities, now=now, code=plan.code)
    files = {
        "scenario.yaml": scenario,
        "resolved.yaml": atomic.text_bytes(resolved),
        "plan.json": text,
        "manifest.json": atomic.json_bytes(about),
    }
    atomic.write_together(run.path, files)


def known_before(plan: Plan) -> dict[str, Any]:
    """Return the manifest's description of this machine before the run: the kernel of an exact run, and GPUs.

    An emulated run adds its own findings when it starts. Raise ``CapabilityError`` if the kernel is missing.
    """
    kernel = exact.capabilities(plan) if plan.is_exact else {}
    return {**kernel, **({} if plan.is_spread else devices.about(plan))}


def add_capabilities(run: RunDirectory, event: Mapping[str, Any]) -> None:
    """Add an event of kind ``capabilities`` to the manifest; ignore other events."""
    if event["kind"] == "capabilities":
        about = json.loads(run.file("manifest.json").read_text())
        about["capabilities"].update({key: value for key, value in event.items() if key not in ("kind", "t")})
        atomic.write_json(run.file("manifest.json"), about)


def _equal_every(plan: Plan) -> int:
    """Return the number of rounds after which all workers have equal parameters; 0 if they never need to."""
    from testbed.engine import sync_setup
    from testbed.paradigms import PARADIGMS

    if plan.program is not None or not PARADIGMS[plan.technique.paradigm.kind].global_sum:
        return 0
    if not sync_setup.all_wait(plan) or sync_setup.lags(plan):
        return 0
    if sync_setup.streaming(plan) is not None:  # fragments take turns
        return 0
    return sync_setup.lan_rounds(plan)


@dataclass(frozen=True, slots=True)
class Concluded:
    """The results of a run's events. ``outcome`` is ``diverged`` if training diverged; ``plan``: decoded JSON."""

    outcome: SessionResult
    plan: dict[str, Any]
    result: dict[str, Any]
    tables: dict[str, pd.DataFrame]


def conclude(
    run: RunDirectory, plan: Plan, outcome: SessionResult, started: str, duration_s: float, here: Plan | None = None
) -> Concluded:
    """Write tables, fidelity report and result, each atomically, in the order of dependence.

    The caller sets the final status once it has written its own files. ``here``: the Plan with the paths of files on
    this machine, if they differ from those of ``plan``.
    """
    from testbed.results import fidelity, tables
    from testbed.results.divergence import divergence, of_tellers, spoilt_values
    from testbed.results.events import DOUBT
    from testbed.simulation.prediction_error import contested_links, error_of, note_of_contest

    built = tables.build(run.events)
    tables.write(run.tables, built)
    frames = {name: tables.frame(table) for name, table in built.items()}
    content = msgspec.json.decode(to_json(plan))
    capabilities = json.loads(run.file("manifest.json").read_text())["capabilities"]
    report = fidelity.assess(frames, content, capabilities, outcome.status, equal_every=_equal_every(here or plan))
    ended_well = outcome.status in ("done", "reduced")
    all_tell = plan.program is None and plan.pipeline is None
    told = frames["rounds"] if all_tell else of_tellers(frames["rounds"])
    reason = spoilt_values(frames["finals"]) or divergence(told, frames["accuracy"], plan.training.rounds)
    if ended_well and reason:
        outcome = SessionResult("diverged", reason, Diverged.exit_code)
    ended = datetime.now(UTC)
    if plan.is_exact:  # by the guest's clock, so that equal runs leave equal files
        duration_s = max((float(frame["t_s"].max()) for frame in frames.values() if len(frame)), default=0.0)
        started = GUEST_START.isoformat()
        ended = GUEST_START + timedelta(seconds=round(duration_s))
    ending = Ending(outcome.status, outcome.message, started, ended.isoformat(timespec="seconds"), duration_s)
    contested = contested_links(plan, frames)
    if contested:
        report["notes"].append(note_of_contest(contested))
    error = None
    if not neighbours(run.path):  # deviations from exact runs were measured on jobs without neighbours
        doubted = bool((frames["warnings"]["cause"] == DOUBT).any())
        error = error_of(plan, doubted, is_contested=bool(contested))
    result = summary.summarise(frames, content, report, ending, error.interval if error else None)
    files = {"fidelity.json": atomic.json_bytes(report), "result.json": atomic.json_bytes(result)}
    atomic.write_together(run.path, files)
    return Concluded(outcome, content, result, frames)
