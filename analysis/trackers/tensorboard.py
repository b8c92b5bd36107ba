"""TensorBoard, with one file of events per run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from analysis.trackers.base import Plan, Tracker, needed, parameters
from testbed.results.scalars import SeriesValue


class TensorBoard(Tracker):
    """Writes ``<out>/events.out.tfevents…``. Wall times are seconds of training."""

    shares = False

    def __init__(self, run: str, plan: Plan, out: Path) -> None:
        self._folder = out
        self._writer = needed("tensorboard").SummaryWriter(str(out))
        rows = "\n".join(f"| {name} | {value} |" for name, value in parameters(plan).items())
        self._writer.add_text("parameters", f"| parameter | value |\n|---|---|\n{rows}", 0, walltime=0.0)
        self.files: list[Path] = []

    def write(self, scalars: Iterable[SeriesValue]) -> None:
        for tag, step, t_s, value in scalars:
            self._writer.add_scalar(tag, value, step, walltime=t_s)
        self._writer.flush()

    def close(self, summary: Mapping[str, float]) -> None:
        rows = "\n".join(f"| {name} | {value:g} |" for name, value in summary.items())
        self._writer.add_text("summary", f"| figure | value |\n|---|---|\n{rows}", 0, walltime=0.0)
        self._writer.close()
        self.files = sorted(self._folder.glob("events.out.tfevents.*"))
