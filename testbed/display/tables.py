"""Tables of several runs: comparisons and sweeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from testbed.display import look
from testbed.results import COMPLETED

if TYPE_CHECKING:
    from rich.table import Table


def comparison_table(rows: list[dict[str, Any]]) -> Table:
    from analysis import numbers
    from analysis.compare import starred

    target = numbers.target(rows[0]["target"]) if rows[0]["target"] else "target"
    shown = look.table("", "run", ">accuracy", ">round time", f">to {target}", ">speed-up", ">WAN bytes", ">waiting")
    for row in rows:
        doubt = "" if row["fidelity"] == "ok" else f"\nfidelity {row['fidelity']}"
        doubt += "\ndiverged" if row["status"] == "diverged" else ""
        resumed = row.get("resumed_round")
        doubt += "" if resumed is None else f"\nresumed after {resumed + 1} rounds"
        factor = look.number(row["speed_up"], ".2f") + ("*" if starred(row) else "")
        shown.add_row(
            f"{row['label']}\n{row['run']}{doubt}", look.number(row["accuracy"]), look.seconds(row["round_time_s"]),
            look.seconds(row["time_to_target_s"]), factor,
            look.size(row["wan_bytes"]) + ("" if resumed is None else " since"), look.share(row["waiting_share"]),
        )  # fmt: skip
    return shown


def sweep_table(rows: Sequence[Mapping[str, Any]], varied: Sequence[str]) -> Table:
    """Return one row per point: mean over seeds ± half width of the 95 % confidence interval."""
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[path] for path in varied), []).append(row)
    timed = "round_time_s" if any(row["round_time_s"] is not None for row in rows) else "training_s"
    time = ">round time" if timed == "round_time_s" else ">run time"
    shown = look.table("mean over seeds ± 95 % confidence", *(path.rpartition(".")[2] for path in varied),
                       ">runs", ">accuracy", time, ">time to target", ">WAN bytes")  # fmt: skip
    for values, group in groups.items():
        done = [row for row in group if row["status"] in COMPLETED]
        share = f"{len(done)}/{len(group)}" if len(done) < len(group) else str(len(group))
        if wild := sum(row["status"] == "diverged" for row in group):
            share += f", {wild} diverged"
        reached = sum(row["time_to_target_s"] is not None for row in done)
        to_target = _mean(done, "time_to_target_s", look.seconds)
        partly = f" ({reached}/{len(done)})" if 0 < reached < len(done) else ""
        accuracy, round_time = _mean(done, "accuracy", look.number), _mean(done, timed, look.seconds)
        shown.add_row(*values, share, accuracy, round_time, to_target + partly, _mean(done, "wan_bytes", look.size))
    return shown


def _mean(rows: list[Mapping[str, Any]], name: str, form: Any) -> str:
    from analysis.metrics import mean_of

    values = [float(row[name]) for row in rows if row[name] is not None]
    if not values:
        return str(look.NONE)
    mean = mean_of(values)
    return f"{form(mean.value)} ± {form(mean.half_width)}" if mean.count > 1 else str(form(mean.value))
