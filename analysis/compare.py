"""Compares several runs: rows for a table, a CSV file, a LaTeX table and a figure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from analysis import identity
from analysis.comparable import frames_and_payload
from analysis.figures.compare import draw
from analysis.load import StoredRun
from analysis.metrics import speed_up, stands_for, time_to, waiting
from testbed import numbers
from testbed.errors import ScenarioError
from testbed.results import atomic, summary
from testbed.results.pipelines import rounds_of_replicas
from testbed.target import ACCURACY, LOSS, Target, learning_of, target_in, target_of_row


def comparison(runs: list[StoredRun], target: Target | None = None) -> list[dict[str, Any]]:
    """Return one row per run, in the order given. Raise ``ScenarioError`` for a run without a result or a round.

    ``speed_up`` is relative to the first run, and ``speed_up_of`` names its measure: the time to the target if there is
    one, otherwise the time of a training step, or the run time of programs. A run that did not reach the target has
    none.
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


def target_of(runs: Sequence[StoredRun], target: Target | None) -> Target | None:
    """Return ``target``, or the target of the first run's scenario if it is ``None``."""
    return target or target_in(runs[0].plan["training"])


_COLUMNS = (  # of the LaTeX table: two lines of heading, field, factor. A page has no room for more columns
    ("accuracy", "at end (\\%)", "accuracy", 100.0),
    ("loss", "at end", "loss", 1.0),
    ("to target", "(s)", "time_to_target_s", 1.0),
    ("speed-up", "", "speed_up", 1.0),
    ("step", "(ms)", "step_time_s", 1e3),
    ("WAN", "(MB)", "wan_bytes", 1e-6),
)
LONG_LABEL = 16
"""A label with more characters is broken into lines."""
_LABELS = r"p{0.22\linewidth}"
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


def tabular(columns: str, heads: Sequence[Sequence[str]], rows: Iterable[Sequence[str]], note: str = "") -> str:
    """Return a ``tabular`` for the package booktabs.

    columns  its column specification
    heads    the lines of the heading, each with its cells
    note     written as a LaTeX comment
    """
    top, body = ([" & ".join(cells) + r" \\" for cells in lines] for lines in (heads, rows))
    notes = [f"% {note}"] if note else []
    lines = [
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        *top,
        r"\midrule",
        *body,
        r"\bottomrule",
        *notes,
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def fitting(heads: Sequence[Sequence[str]], rows: Iterable[Sequence[str]], note: str) -> str:
    """Return a ``tabular`` of numbers that fits a one-column article: long labels are broken into lines."""
    left = "l"
    body = list(rows)
    if any(len(label.replace("\\", "")) > LONG_LABEL for label, *cells in body if cells):
        left = _LABELS
        body = [[_broken(label), *cells] if cells else [label] for label, *cells in body]
    return tabular(rf"@{{}}{left}{'r' * (len(heads[0]) - 1)}@{{}}", heads, body, note)


def _broken(label: str) -> str:
    """Return a label that may also be broken after underscores."""
    return rf"\raggedright {label}".replace(r"\_", r"\_\allowbreak{}")


def in_a_column(table: str) -> str:
    """Return a ``tabular`` in smaller letters, for a column of a two-column paper."""
    smaller = table.replace(r"\footnotesize", r"\scriptsize").replace(_LABELS, r"p{0.18\linewidth}")
    return f"{{\\footnotesize\\setlength{{\\tabcolsep}}{{2pt}}%\n{smaller}}}%\n"


def as_latex(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a ``tabular``. Unknown values are dashes; columns without values are left out."""
    hidden = {ACCURACY, LOSS} - {learning_of(target_of_row(rows[0]))}
    shown = [
        column for column in _COLUMNS if column[2] not in hidden and any(row[column[2]] is not None for row in rows)
    ]
    heads = [["", *(name for name, *_ in shown)], ["", *(unit for _, unit, *_ in shown)]]
    cells = [[latex_text(str(row["label"])), *(_cell(row[name], factor) for *_, name, factor in shown)] for row in rows]
    notes = ["WAN: of the whole run, rounds after the target included"]
    notes += frames_and_payload(rows)
    notes += [f"{row['run']}: {row['status']}" for row in rows if row["status"] != "done"]
    return fitting(heads, cells, "; ".join(notes))


def _cell(value: float | None, factor: float) -> str:
    return "--" if value is None else numbers.short(value * factor)


def write(runs: list[StoredRun], rows: list[dict[str, Any]], folder: Path, columns: int = 2) -> list[Path]:
    """Write ``comparison.csv``, ``.tex``, ``.png`` and ``.pdf`` into ``folder``; return their paths.

    columns  how many columns of a paper the figure and the table fill: 1 or 2
    """
    folder.mkdir(parents=True, exist_ok=True)
    latex = folder / "comparison.tex"
    text = as_latex(rows)
    atomic.write_text(latex, text if columns > 1 else in_a_column(text))
    table = folder / "comparison.csv"
    atomic.write_text(table, pd.DataFrame(rows).to_csv(index=False))
    figure = draw(runs, target_of_row(rows[0]), columns)
    return [table, latex, *(save(figure, folder / f"comparison.{form}") for form in ("png", "pdf"))]


def save(figure: Figure, path: Path) -> Path:
    """Write a figure in the format of the path's suffix; return the path."""
    with atomic.replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix.removeprefix("."), dpi=200)
    return path


def row_of(run: StoredRun, target: Target | None) -> dict[str, Any]:
    """Return the measures by which runs are compared, including the time to ``target`` if there is one."""
    result = run.result
    assert result is not None
    reached = None if target is None else summary.at_target(run.tables["accuracy"], target)
    known = ("back_end", "seed", "status", "rounds", "accuracy", "round_time_s")
    return {
        "technique": identity.technique_of(run.plan),
        "summed_gradients": run.plan.get("summed_gradients", 1),
        **{name: result[name] for name in known},
        "loss": result.get("loss"),
        "round_low_s": result.get("round_s", {}).get("low"),
        "round_high_s": result.get("round_s", {}).get("high"),
        "accuracy_at_target": None if reached is None else reached.accuracy,
        "loss_at_target": None if reached is None else reached.loss,
        **_pace(run),
        "training_s": result["training_s"],
        "resumed_round": result.get("resumed_round"),
        "missed_faults": summary.missed_faults(result),
        "target": None if target is None else target.value,
        "target_measure": None if target is None else target.measure,
        "evaluations_to_target": None if reached is None else reached.evaluations,
        "time_to_target_s": None if target is None else time_to(run, target),
        "wan_bytes": summary.wan_bytes_of(result),
        "waiting_share": waiting(run) if run.program is None else None,
        **({} if run.program is None else {"run_time_s": result["training_s"]}),
        "fidelity": result["fidelity"]["status"],
    }


def _pace(run: StoredRun) -> dict[str, float | None]:
    """Return measures that are comparable between runs whose rounds have different numbers of training steps."""
    rounds = rounds_of_replicas(run.tables["rounds"], run.plan)
    copies = stands_for(run)
    step_s = summary.step_time_s(rounds, copies) if run.program is None else None
    return {"step_time_s": step_s, "samples_per_s": summary.samples_per_s(rounds, run.tables["faults"], copies)}


def _speed_up(base: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    measures = ("step_time_s", "run_time_s") if row["target"] is None else ("time_to_target_s",)
    for measure in measures:
        factor = speed_up(base.get(measure), row.get(measure))
        if factor is not None:
            return {"speed_up": factor, "speed_up_of": measure}
    return {"speed_up": None, "speed_up_of": None}
