"""Several runs side by side: rows for a table, a CSV file, a figure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from analysis import identity
from analysis.figures.compare import draw
from analysis.load import StoredRun
from analysis.metrics import speed_up, stands_for, time_to_accuracy, waiting
from testbed import numbers
from testbed.errors import ScenarioError
from testbed.results import atomic, summary
from testbed.results.pipelines import rounds_of_replicas


def comparison(runs: list[StoredRun], target: float | None = None) -> list[dict[str, Any]]:
    """Return one row per run, in the order given. ``speed_up``: in time to the target against the first run.

    A run that never reached the target has none. Without a target it is the speed-up in the time of a training step,
    and of programs in run time; ``speed_up_of`` says so. Raises ``ScenarioError`` for a run without a result.
    """
    problems = [
        f"{run.path}: has no result ({run.status.state}); finish the run first" for run in runs if not run.result
    ]
    problems += [
        f"{run.path}: completed no round"
        for run in runs
        if run.result and run.program is None and run.tables["rounds"].empty
    ]
    if problems:
        raise ScenarioError(problems)
    target = target_of(runs, target)
    looks = identity.of_runs([run.plan for run in runs])
    rows = [
        {"run": run.name, "label": look.label, **row_of(run, target)} for run, look in zip(runs, looks, strict=True)
    ]
    return [{**row, **_speed_up(rows[0], row)} for row in rows]


def target_of(runs: Sequence[StoredRun], target: float | None) -> float | None:
    """Return the accuracy given, or else that of the first run's scenario."""
    found: float | None = target if target is not None else runs[0].plan["training"]["target_accuracy"]
    return found


_COLUMNS = (  # of the LaTeX table: heading, field, factor
    ("accuracy (\\%)", "accuracy", 100.0), ("at target (\\%)", "accuracy_at_target", 100.0),
    ("round (ms)", "round_time_s", 1e3), ("step (ms)", "step_time_s", 1e3), ("samples/s", "samples_per_s", 1.0),
    ("to target (s)", "time_to_target_s", 1.0), ("speed-up", "speed_up", 1.0), ("WAN (MB)", "wan_bytes", 1e-6),
    ("waiting (\\%)", "waiting_share", 100.0),
)  # fmt: skip
_LATEX = str.maketrans(
    {
        **{each: f"\\{each}" for each in "_%&#${}"},
        **{each: f"${each}$" for each in "+<>|"},
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "\\": r"\textbackslash{}",
    }
)


def latex_text(text: str) -> str:
    """Return the text with LaTeX's special characters escaped."""
    return text.translate(_LATEX)


def tabular(columns: str, head: Sequence[str], rows: Iterable[Sequence[str]], note: str = "") -> str:
    """Return a ``tabular`` for the package booktabs."""
    top, *body = [" & ".join(cells) + r" \\" for cells in (head, *rows)]
    notes = [f"% {note}"] if note else []
    lines = [
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        top,
        r"\midrule",
        *body,
        r"\bottomrule",
        *notes,
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def as_latex(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a ``tabular``; what is not known is a dash."""
    cells = [[latex_text(str(row["label"])), *(_cell(row, *column) for column in _COLUMNS)] for row in rows]
    notes = [f"{row['run']}: {row['status']}" for row in rows if row["status"] != "done"]
    return tabular("l" + "r" * len(_COLUMNS), ["", *(heading for heading, *_ in _COLUMNS)], cells, "; ".join(notes))


def _cell(row: dict[str, Any], _: str, name: str, factor: float) -> str:
    return "--" if row[name] is None else numbers.short(row[name] * factor)


def write(runs: list[StoredRun], rows: list[dict[str, Any]], folder: Path, columns: int = 2) -> list[Path]:
    """Write ``comparison.csv``, ``.tex``, ``.png`` and ``.pdf`` into ``folder``; return their paths.

    ``columns``: how many columns of a paper the figure fills, 1 or 2.
    """
    folder.mkdir(parents=True, exist_ok=True)
    latex = folder / "comparison.tex"
    atomic.write_text(latex, as_latex(rows))
    table = folder / "comparison.csv"
    atomic.write_text(table, pd.DataFrame(rows).to_csv(index=False))
    figure = draw(runs, rows[0]["target"], columns)
    return [table, latex, *(save(figure, folder / f"comparison.{form}") for form in ("png", "pdf"))]


def save(figure: Figure, path: Path) -> Path:
    """Write a figure in the format of the path's ending; return the path."""
    with atomic.replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix.removeprefix("."), dpi=200)
    return path


def row_of(run: StoredRun, target: float | None) -> dict[str, Any]:
    """Return what runs are compared by; ``target``: the accuracy whose time is asked for, if any."""
    result = run.result
    assert result is not None
    reached = None if target is None else summary.at_target(run.tables["accuracy"], target)
    known = ("back_end", "seed", "status", "rounds", "accuracy", "round_time_s")
    return {
        "technique": identity.technique_of(run.plan),
        **{name: result[name] for name in known},
        "round_low_s": result.get("round_s", {}).get("low"),
        "round_high_s": result.get("round_s", {}).get("high"),
        "accuracy_at_target": None if reached is None else reached.accuracy,
        **_pace(run),
        "training_s": result["training_s"],
        "resumed_round": result.get("resumed_round"),
        "target": target,
        "time_to_target_s": time_to_accuracy(run, target) if target is not None else None,
        "wan_bytes": sum(moved["up"] for moved in result["wan_payload_bytes"].values()),
        "waiting_share": waiting(run) if run.program is None else None,
        **({} if run.program is None else {"run_time_s": result["training_s"]}),
        "fidelity": result["fidelity"]["status"],
    }


def _pace(run: StoredRun) -> dict[str, float | None]:
    """Return what runs compare by whose rounds have different numbers of steps."""
    rounds = rounds_of_replicas(run.tables["rounds"], run.plan)
    copies = stands_for(run)
    step_s = summary.step_time_s(rounds, copies) if run.program is None else None
    return {"step_time_s": step_s, "samples_per_s": summary.samples_per_s(rounds, copies)}


def _speed_up(base: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    measures = ("step_time_s", "run_time_s") if row["target"] is None else ("time_to_target_s",)
    for measure in measures:
        factor = speed_up(base.get(measure), row.get(measure))
        if factor is not None:
            return {"speed_up": factor, "speed_up_of": measure}
    return {"speed_up": None, "speed_up_of": None}
