"""A scenario run by the command, as a user would: for experiments that need real processes."""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LIMIT_S = 900.0


@dataclass(frozen=True, slots=True)
class Ended:
    """``result`` is that of the run directory ``path``; without one, ``status`` says what the command said."""

    path: Path
    status: str
    result: dict[str, Any]

    @property
    def iteration_s(self) -> float:
        """Mean time of a round."""
        return float(self.result.get("round_time_s") or "nan")

    def rounds_s(self) -> list[float]:
        """See the function of that name."""
        events = []
        for path in sorted((self.path / "events").glob("*.worker*.jsonl")):
            events += [{"node": path.stem, **json.loads(line)} for line in path.read_text().splitlines()]
        return rounds_s(events)


def rounds_s(events: Iterable[dict[str, Any]]) -> list[float]:
    """From one round's beginning to the next's, the first left out, as the worker with most rounds saw them."""
    begins: dict[str, list[float]] = {}
    for event in events:
        if event["kind"] == "round":
            begins.setdefault(event["node"], []).append(event["t0"])
    by_worker: list[list[float]] = [[], *begins.values()]
    longest = max(by_worker, key=len)
    return [after - before for before, after in itertools.pairwise(sorted(longest)[1:])]


def run(scenario: Path, on: str, out: Path, overrides: Iterable[str] = (), limit_s: float = LIMIT_S) -> Ended:
    """``testbed run scenario --on on --out out --set …``; a finished run that is there is taken as it is."""
    settings = [word for text in overrides for word in ("--set", text)]
    words = [sys.executable, "-m", "testbed.cli.main", "run", str(scenario), "--on", on, "--out", str(out), "--quiet"]
    out.parent.mkdir(parents=True, exist_ok=True)
    ended = subprocess.run([*words, *settings], check=False, timeout=limit_s, capture_output=True, text=True)
    path = out / "result.json"
    if ended.returncode != 0 or not path.exists():
        return Ended(out, f"exit code {ended.returncode}: {ended.stderr.strip()[-300:]}", {})
    result = json.loads(path.read_text())
    return Ended(out, str(result["status"]), result)


def mean_and_p95(values: list[float]) -> tuple[float, float]:
    """Of at least two values."""
    return statistics.fmean(values), statistics.quantiles(values, n=20, method="inclusive")[-1]
