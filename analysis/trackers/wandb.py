"""Weights & Biases, offline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from analysis.trackers.base import Plan, Tracker, needed, parameters
from testbed.results.scalars import SeriesValue


class Wandb(Tracker):
    """Writes ``<out>/wandb/offline-run-…``; users may upload it with ``wandb sync``.

    Every series has its own step (``<tag>/step``) and seconds of training (``<tag>/time_s``).
    """

    shares = True

    def __init__(self, run: str, plan: Plan, out: Path) -> None:
        out.mkdir(parents=True, exist_ok=True)
        settings = {"project": plan["name"], "name": run, "dir": str(out), "config": parameters(plan)}
        package = needed("wandb")
        quiet = package.Settings(silent=True)  # the terminal belongs to the run
        self._run = package.init(**settings, mode="offline", reinit="create_new", settings=quiet)
        self._known: set[str] = set()
        self.files: list[Path] = []

    def write(self, scalars: Iterable[SeriesValue]) -> None:
        for tag, step, t_s, value in scalars:
            if tag not in self._known:
                self._run.define_metric(tag, step_metric=f"{tag}/step")
                self._known.add(tag)
            self._run.log({tag: value, f"{tag}/step": step, f"{tag}/time_s": t_s})

    def close(self, summary: Mapping[str, float]) -> None:
        self._run.summary.update(dict(summary))
        self.files = [Path(self._run.dir).parent]
        self._run.finish()
