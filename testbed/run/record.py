"""Before and after a run on any back end: claims the run directory, and afterwards makes its tables and its result."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from testbed.plan.model import Plan, to_json
from testbed.results import atomic, rundir, summary
from testbed.results.rundir import RunDirectory
from testbed.results.summary import Ending
from testbed.run.session import SessionResult


@dataclass(frozen=True, slots=True)
class Texts:
    """What a run directory keeps about where the Plan came from: ``scenario.yaml``, ``resolved.yaml``, manifest."""

    scenario: bytes
    resolved: str
    manifest: Mapping[str, Any]


def prepare(path: Path, plan: Plan, texts: Texts, again: bool = False) -> RunDirectory:
    """Claim the directory and write what is known before the run. Raises as ``rundir.claim``."""
    text = to_json(plan)
    sha256 = summary.sha256_of(json.loads(text))
    run = rundir.claim(path, sha256, again)
    atomic.write_bytes(run.file("scenario.yaml"), texts.scenario)
    atomic.write_text(run.file("resolved.yaml"), texts.resolved)
    atomic.write_bytes(run.file("plan.json"), text)
    atomic.write_json(run.file("manifest.json"), dict(texts.manifest))
    run.set_status("running", sha256)
    return run


def add_capabilities(run: RunDirectory, event: Mapping[str, Any]) -> None:
    """If the host tells what it found the machine to be capable of, that is part of the manifest, from then on."""
    if event["kind"] == "capabilities":
        about = json.loads(run.file("manifest.json").read_text())
        about["capabilities"].update({key: value for key, value in event.items() if key not in ("kind", "t")})
        atomic.write_json(run.file("manifest.json"), about)


def conclude(run: RunDirectory, plan: Plan, outcome: SessionResult, started: str, duration_s: float) -> dict[str, Any]:
    """Tables, fidelity report and result, each appearing whole, in the order of dependence; returns the result.

    The final status is the caller's to set, when all that it adds has been written.
    """
    from testbed.results import fidelity, tables

    tables.write(run.tables, tables.build(run.events))
    frames = tables.read(run.path)
    content = json.loads(to_json(plan))
    capabilities = json.loads(run.file("manifest.json").read_text())["capabilities"]
    report = fidelity.assess(frames, content, capabilities)
    ended = datetime.now(UTC).isoformat(timespec="seconds")
    ending = Ending(outcome.status, outcome.message, started, ended, duration_s)
    result = summary.summarise(frames, content, report, ending)
    atomic.write_json(run.file("fidelity.json"), report)
    atomic.write_json(run.file("result.json"), result)
    return result
