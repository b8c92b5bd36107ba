"""Which trainings are called diverged: every shipped scenario, and those of ``divergence.csv``, in virtual time.

    python -m analysis.benchmarks divergence --only geomx --rounds 60

A row of ``divergence.csv`` is a shipped scenario with settings (as after ``--set``, separated by blanks between
semicolons), whether it diverges, and the cause. Shipped scenarios train. Left out are those without losses (models by
their sizes only) and those that cannot be simulated. A row is ``ok`` if the run is called what it is.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from analysis.benchmarks.harness import Row
from testbed.errors import ScenarioError
from testbed.execution import host, record
from testbed.plan.build import build_plan
from testbed.plan.model import Plan
from testbed.results import COMPLETED
from testbed.scenario.load import load
from testbed.scenario.shipped import names

CASES = Path(__file__).with_suffix(".csv")


@dataclass(frozen=True, slots=True)
class TrainingCase:
    """A shipped scenario with settings, and whether its training diverges."""

    scenario: str
    settings: tuple[str, ...] = ()
    diverges: bool = False
    cause: str = ""

    @property
    def name(self) -> str:
        return " ".join((self.scenario, *self.settings))

    def plan(self, rounds: int) -> Plan:
        """Return the Plan of at most ``rounds`` rounds. Raise ``ScenarioError`` if it cannot be simulated."""
        scenario = load(self.scenario, self.settings, on="simulate", sweeping=True, allow_code=True)
        if scenario.training.rounds > rounds:
            scenario = load(self.scenario, (*self.settings, f"training.rounds={rounds}"), on="simulate",
                            sweeping=True, allow_code=True)  # fmt: skip
        return build_plan(scenario)


def cases() -> list[TrainingCase]:
    """Return all shipped scenarios, and the rows of ``divergence.csv``."""
    with open(CASES, encoding="utf-8", newline="") as file:
        rows = [
            TrainingCase(
                row["scenario"], tuple(row["settings"].split(" ; ")), row["expected"] == "diverges", row["cause"]
            )
            for row in csv.DictReader(file)
        ]
    return [*map(TrainingCase, names()), *rows]


def classify(case: TrainingCase, rounds: int) -> Row | None:
    """Simulate a case and return its row; ``None`` if it has no losses, or is shipped and cannot be simulated."""
    try:
        plan = case.plan(rounds)
    except ScenarioError:
        if case.settings:
            raise
        return None
    if plan.training.compute == "modelled":
        return None
    begin_s = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        run = record.prepare(Path(folder) / "run", plan, scenario=b"", resolved="", capabilities={})
        outcome = host.attempt(plan, run.path, lambda event: None)
        ended = record.conclude(run, plan, outcome, "", 0.0)
        outcome, result = ended.outcome, ended.result
        losses = ended.tables["rounds"].groupby("round")["loss"].median()
    if not losses.notna().any():
        return None  # a script's
    return {
        "ok": outcome.status in COMPLETED and (outcome.status == "diverged") == case.diverges,
        "expected": "diverges" if case.diverges else "trains",
        "status": outcome.status,
        "rounds": result["rounds"],
        "first_loss": float(losses.iloc[0]),
        "last_loss": float(losses.iloc[-1]),
        "accuracy": result["accuracy"],
        "cpu_s": time.process_time() - begin_s,
        "case": case.name,
        "message": outcome.message or case.cause,
    }


def measure(options: argparse.Namespace) -> Iterator[Row]:
    for case in cases():
        if options.only in case.name and (row := classify(case, options.rounds)) is not None:
            yield row


ARGUMENTS = {
    "--only": {"default": "", "metavar": "TEXT", "help": "cases with this in their name"},
    "--rounds": {"type": int, "default": 120, "help": "at most; default: 120"},
}
