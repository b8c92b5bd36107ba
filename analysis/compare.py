"""Several runs side by side: rows for a table, a CSV file, a figure."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis import identity
from analysis.figures.compare import draw
from analysis.load import Run
from analysis.measures import waiting
from analysis.metrics import speed_up, time_to_accuracy
from testbed.errors import ScenarioError
from testbed.results import atomic

if TYPE_CHECKING:
    from matplotlib.figure import Figure

UNITS = {"round_time_s": "s", "time_to_target_s": "s", "wan_bytes": "B", "accuracy": "1", "waiting_share": "1"}


def comparison(runs: list[Run], target: float | None = None) -> list[dict[str, Any]]:
    """One row per run, in the order given. ``speed_up``: in time to the target against the first run.

    Where either run never reached the target (or there is none), it is the speed-up in round time, and
    ``speed_up_of`` says so. Raises ``ScenarioError`` for a run without a result.
    """
    _refuse_unfinished(runs)
    target = target if target is not None else runs[0].plan["training"]["target_accuracy"]
    looks = identity.of_runs([run.plan for run in runs])
    rows = [_row(run, look.label, target) for run, look in zip(runs, looks, strict=True)]
    return [{**row, **_speed_up(rows[0], row)} for row in rows]


_COLUMNS = (  # of the LaTeX table: heading, field, factor, form
    ("accuracy (\\%)", "accuracy", 100.0, ".2f"), ("round (ms)", "round_time_s", 1e3, ".4g"),
    ("to target (s)", "time_to_target_s", 1.0, ".4g"), ("speed-up", "speed_up", 1.0, ".2f"),
    ("WAN (MB)", "wan_bytes", 1e-6, ".4g"), ("waiting (\\%)", "waiting_share", 100.0, ".1f"),
)  # fmt: skip
_LATEX = str.maketrans({"_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$", "+": r"$+$", "<": r"$<$"})


STARRED = "of the time of a round, as one of the two runs never reached the target"


def starred(row: dict[str, Any]) -> bool:
    """Whether the speed-up is not the one in time to the target, although there is a target."""
    return row["target"] is not None and row["speed_up_of"] == "round_time_s"


def latex_text(text: str) -> str:
    """With what LaTeX would take for a command written out."""
    return text.translate(_LATEX)


def as_latex(rows: list[dict[str, Any]]) -> str:
    """The rows as a ``tabular`` for the package booktabs; what is not known is a dash."""
    head = " & ".join(["", *(heading for heading, *_ in _COLUMNS)])
    body = [" & ".join([latex_text(str(row["label"])), *(_cell(row, *column) for column in _COLUMNS)]) for row in rows]
    note = [f"% * speed-up {STARRED}"] if any(map(starred, rows)) else []
    lines = [r"\begin{tabular}{l" + "r" * len(_COLUMNS) + "}", r"\toprule", head + r" \\", r"\midrule",
             *(line + r" \\" for line in body), r"\bottomrule", *note, r"\end{tabular}"]  # fmt: skip
    return "\n".join(lines) + "\n"


def _cell(row: dict[str, Any], heading: str, name: str, factor: float, form: str) -> str:
    del heading
    if row[name] is None:
        return "--"
    return format(row[name] * factor, form) + (r"$^*$" if name == "speed_up" and starred(row) else "")


def write(runs: list[Run], rows: list[dict[str, Any]], folder: Path, columns: int = 2) -> list[Path]:
    """``comparison.csv``, ``.tex``, ``.png`` and ``.pdf`` in ``folder``; returns their paths.

    ``columns``: how many columns of a paper the figure fills, 1 or 2.
    """
    folder.mkdir(parents=True, exist_ok=True)
    latex = folder / "comparison.tex"
    atomic.write_text(latex, as_latex(rows))
    table = folder / "comparison.csv"
    with atomic.replacing(table) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    figure = draw(runs, rows[0]["target"], columns)
    return [table, latex, *(_save(figure, folder / f"comparison.{form}") for form in ("png", "pdf"))]


def _save(figure: Figure, path: Path) -> Path:
    with atomic.replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix.removeprefix("."), dpi=200)
    return path


def _refuse_unfinished(runs: list[Run]) -> None:
    problems = [
        f"{run.path}: has no result ({run.status.state}); finish the run first" for run in runs if not run.result
    ]
    problems += [f"{run.path}: completed no round" for run in runs if run.result and not run.result["rounds"]]
    if problems:
        raise ScenarioError(problems)


def _row(run: Run, label: str, target: float | None) -> dict[str, Any]:
    result = run.result
    assert result is not None
    return {
        "run": run.name,
        "label": label,
        "technique": identity.technique_of(run.plan),
        "back_end": result["back_end"],
        "seed": result["seed"],
        "status": result["status"],
        "rounds": result["rounds"],
        "accuracy": result["accuracy"],
        "round_time_s": result["round_time_s"],
        "target": target,
        "time_to_target_s": time_to_accuracy(run, target) if target is not None else None,
        "wan_bytes": sum(moved["up"] for moved in result["wan_payload_bytes"].values()),
        "waiting_share": waiting(run),
        "fidelity": result["fidelity"]["status"],
    }


def _speed_up(base: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    for measure in ("time_to_target_s", "round_time_s"):
        factor = speed_up(base[measure], row[measure])
        if factor is not None:
            return {"speed_up": factor, "speed_up_of": measure}
    return {"speed_up": None, "speed_up_of": None}
