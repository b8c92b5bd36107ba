"""MLflow, in an SQLite database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from analysis.trackers.base import Plan, Tracker, needed, parameters
from testbed.results.scalars import SeriesValue


class MLflow(Tracker):
    """Writes ``<out>/mlflow.db``, with an experiment per scenario. Show: ``mlflow ui --backend-store-uri sqlite:///…``.

    Timestamps are milliseconds of training.
    """

    shares = True

    def __init__(self, run: str, plan: Plan, out: Path) -> None:
        self._mlflow = needed("mlflow")
        out.mkdir(parents=True, exist_ok=True)
        database = out.resolve() / "mlflow.db"
        self._client = self._mlflow.MlflowClient(tracking_uri=f"sqlite:///{database}")
        known = self._client.get_experiment_by_name(plan["name"])
        experiment = known.experiment_id if known else self._client.create_experiment(plan["name"])
        self._number = self._client.create_run(experiment, run_name=run).info.run_id
        chosen = [self._mlflow.entities.Param(name, value) for name, value in parameters(plan).items()]
        self._client.log_batch(self._number, params=chosen)
        self.files = [database]

    def write(self, scalars: Iterable[SeriesValue]) -> None:
        entity = self._mlflow.entities.Metric  # the name of a metric must not contain '>'
        metrics = [
            entity(tag.replace(">", " to "), value, round(t_s * 1000), step) for tag, step, t_s, value in scalars
        ]
        for begin in range(0, len(metrics), 1000):  # MLflow's limit
            self._client.log_batch(self._number, metrics=metrics[begin : begin + 1000])

    def close(self, summary: Mapping[str, float]) -> None:
        self.write(SeriesValue(name, 0, 0.0, float(value)) for name, value in summary.items())
        self._client.set_terminated(self._number)
