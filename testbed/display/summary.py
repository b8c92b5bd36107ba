"""Results as tables: the summary of one run, for the terminal and ``summary.txt``; comparisons and sweeps."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analysis import numbers
from testbed.display import look
from testbed.results import COMPLETED

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from analysis.load import StoredRun

WARNINGS_SHOWN = 8
FAULTS_SHOWN = 12
ROWS_SHOWN = 40  # of data centres, and of nodes

_AGREEMENT = {True: "identical on all workers", False: "workers differ", None: ""}


def summary_of(run: StoredRun) -> list[RenderableType]:
    """Return the answer, the traffic, the faults, the time per round, and the fidelity."""
    from rich.text import Text

    from analysis.load import NOT_LOGGED

    if run.result is None:
        return [Text(f"{run.name}: {run.status.state}; no result yet. {run.status.message}".strip())]
    shown: list[RenderableType] = [answer(run), traffic(run), *faults(run)]
    if run.result["rounds"] and run.program is None:
        shown.append(time_split(run) if run.logs_work else Text(NOT_LOGGED))
    return [*shown, *(Text(line) for line in trust(run))]


def answer(run: StoredRun) -> Table:
    """Return rounds, accuracy and times."""
    result = run.result
    assert result is not None
    title = f"{result['name']} on {result['back_end']}: {result['status']}"
    if run.program is not None:
        return look.table(title, "", ">value", "", rows=_of_program(run, result))
    target = run.plan["training"]["target_accuracy"]
    to_target = f"time to {numbers.share(target)}" if target else "time to target"
    rows = (
        ("rounds", str(result["rounds"]), f"of at most {run.plan['training']['rounds']}"),
        *_resumed(result),
        ("steps", numbers.per_worker(result, "steps"), "per worker"),
        ("samples", numbers.per_worker(result, "samples"), "per worker"),
        ("accuracy", look.number(result["accuracy"]), "test set"),
        ("round time", numbers.seconds(result["round_time_s"]), "mean, without evaluation beside training"),
        *_first_rounds(run.fidelity),
        (to_target, numbers.seconds(result["time_to_target_s"]), "" if target else "no target accuracy"),
        ("training", numbers.seconds(result["training_s"]), "run's clock"),
        ("whole command", numbers.seconds(result["duration_s"]), _clock_of(result)),
        ("parameters", (result["parameters_sha256"] or numbers.MISSING)[:16], _AGREEMENT[result["parameters_agree"]]),
        *_frames(run.plan),
    )  # fmt: skip
    return look.table(title, "", ">value", "", rows=rows)


def _resumed(result: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return where the run has gone on from, if it began with a checkpoint of another one."""
    if "resumed_round" not in result:
        return []
    about = "rounds, steps, samples and bytes count from there"
    return [("resumed", f"after {result['resumed_round'] + 1} rounds", about)]


def _first_rounds(fidelity: Mapping[str, Any] | None) -> list[tuple[str, str, str]]:
    """Return how long the first rounds were beside simulated ones, where that has been looked at."""
    first = (fidelity or {}).get("first_rounds")
    if not first:
        return []
    compared = f"{first['deviation']:+.1%} against a simulation packet by packet"
    return [(f"first {first['rounds']} rounds", numbers.seconds(first["measured_s"]), compared)]


def _frames(plan: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return how messages between processes are protected; virtual time has no frames."""
    transport = plan["transport"]
    how = transport["mac"] + (", TLS" if transport["tls"] else "")
    where = "authentication code" + (", none in shared memory" if transport["shared_memory"] else "")
    return [] if plan["back_end"] == "simulate" else [("frames", how, where)]


def _of_program(run: StoredRun, result: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return what is known of a user's program: processes and times, and what it has reported."""
    nodes = run.tables["nodes"]["node"].nunique()
    logs = "output in logs/" if (run.path / "logs").is_dir() else ""
    rows = [("processes", str(nodes), logs), ("run time", numbers.seconds(result["training_s"]), "run's clock")]
    if result["rounds"]:
        rows.append(("reports", str(result["rounds"]), "of steps, by each process that reports any"))
        rows.append(("time per report", numbers.seconds(result["round_time_s"]), "mean"))
    if result["accuracy"] is not None:
        rows.append(("accuracy", look.number(result["accuracy"]), "last reported"))
    return [*rows, ("whole command", numbers.seconds(result["duration_s"]), _clock_of(result))]


def traffic(run: StoredRun) -> Table:
    """Return WAN bytes per data centre."""
    assert run.result is not None
    if run.program is not None:
        moved = run.result["wan_payload_bytes"].items()
        both = ((site, numbers.size(each["up"]), numbers.size(each["down"])) for site, each in moved)
        return look.table("WAN links, all bytes", "data centre", ">up", ">down", rows=both)
    payload, headers = run.result["wan_payload_bytes"], run.result["wan_header_bytes"]
    rows = [
        (site, moved["up"], moved["down"], headers[site]["up"], headers[site]["down"])
        for site, moved in payload.items()
    ]
    lines = ((site, *map(numbers.size, counts)) for site, *counts in rows[:ROWS_SHOWN])
    shown = look.table("WAN traffic", "data centre", ">up", ">down", ">headers up", ">headers down", rows=lines)
    if left := rows[ROWS_SHOWN:]:
        sums = (sum(row[column] for row in left) for column in range(1, 5))
        shown.add_row(f"and {len(left)} more, together", *map(numbers.size, sums))
    return shown


def faults(run: StoredRun) -> list[Table]:
    """Return faults, restarts and changes of the membership, if there were any."""
    events = run.tables["faults"]
    if events.empty:
        return []
    shown = look.table("faults", ">at", "what", "targets", ">late")
    rows: list[dict[str, Any]] = [
        {str(name): value for name, value in row.items()} for row in events.head(FAULTS_SHOWN).to_dict("records")
    ]
    for row in rows:
        late_s = None if row["late_s"] != row["late_s"] else row["late_s"]
        shown.add_row(numbers.seconds(row["t_s"]), _happened(row), str(row["targets"] or row["message"] or ""),
                      numbers.seconds(late_s))  # fmt: skip
    if len(events) > FAULTS_SHOWN:
        shown.add_row("", f"and {len(events) - FAULTS_SHOWN} more", "", "")
    return [shown]


def _happened(row: dict[str, Any]) -> str:
    if row["kind"] == "fault":
        return str(row["fault"]) if row["begins"] else f"{row['fault']} ends"
    if row["kind"] == "restart":
        return "restart of all nodes"
    return f"membership epoch {row['number']}: {'joined' if row['begins'] else 'left'}"


def time_split(run: StoredRun) -> Table:
    """Return the mean time per round and node; see ``analysis.breakdown``."""
    from analysis.breakdown import PARTS
    from analysis.identity import PARTS as NAMES

    shown = look.table("time per round", "node", *(f">{NAMES[part].label}" for part in PARTS))
    split = run.time_split
    columns = [split[name].head(ROWS_SHOWN).tolist() for name in ("node", *(f"{part}_s" for part in PARTS))]
    for node, *parts in zip(*columns, strict=True):
        shown.add_row(node, *(numbers.seconds(value) for value in parts))
    if len(split) > ROWS_SHOWN:
        shown.add_row(f"and {len(split) - ROWS_SHOWN} more nodes")
    return shown


def trust(run: StoredRun) -> list[str]:
    assert run.result is not None
    verdict = run.result["fidelity"]
    shown, left = verdict["warnings"][:WARNINGS_SHOWN], len(verdict["warnings"]) - WARNINGS_SHOWN
    lines = [f"fidelity: {verdict['status']}", *(f"  - {warning}" for warning in shown)]
    if left > 0:
        lines.append(f"  - and {left} more in fidelity.json")
    return lines if not run.result["message"] else [run.result["message"], *lines]


def _clock_of(result: Mapping[str, Any]) -> str:
    return "virtual time" if result["back_end"] == "exact" else "wall clock"


def as_text(parts: Iterable[RenderableType]) -> str:
    from rich.console import Console

    stream = io.StringIO()
    Console(file=stream, width=look.PIPE_WIDTH, force_jupyter=False, no_color=True, **look.AS_WRITTEN).print(
        *parts, sep="\n"
    )
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


# ---- several runs ----------------------------------------------------------------------------------------------------


def comparison_table(rows: list[dict[str, Any]]) -> Table:
    from analysis.compare import starred

    target = numbers.target(rows[0]["target"]) if rows[0]["target"] else "target"
    shown = look.table("", "run", ">accuracy", ">round time", f">to {target}", ">speed-up", ">WAN bytes", ">waiting")
    for row in rows:
        doubt = "" if row["fidelity"] == "ok" else f"\nfidelity {row['fidelity']}"
        doubt += "" if row["status"] == "done" else f"\n{row['status']}"
        resumed = row.get("resumed_round")
        doubt += "" if resumed is None else f"\nresumed after {resumed + 1} rounds"
        factor = look.number(row["speed_up"], ".2f") + ("*" if starred(row) else "")
        shown.add_row(
            f"{row['label']}\n{row['run']}{doubt}", look.number(row["accuracy"]), numbers.seconds(row["round_time_s"]),
            numbers.seconds(row["time_to_target_s"]), factor,
            numbers.size(row["wan_bytes"]) + ("" if resumed is None else " since"), numbers.share(row["waiting_share"]),
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
        to_target = _mean(done, "time_to_target_s", numbers.seconds)
        partly = f" ({reached}/{len(done)})" if 0 < reached < len(done) else ""
        accuracy, round_time = _mean(done, "accuracy", look.number), _mean(done, timed, numbers.seconds)
        shown.add_row(*values, share, accuracy, round_time, to_target + partly, _mean(done, "wan_bytes", numbers.size))
    return shown


def _mean(rows: list[Mapping[str, Any]], name: str, form: Any) -> str:
    from analysis.metrics import mean_of

    values = [float(row[name]) for row in rows if row[name] is not None]
    if not values:
        return str(numbers.MISSING)
    mean = mean_of(values)
    return f"{form(mean.value)} ± {form(mean.half_width)}" if mean.count > 1 else str(form(mean.value))
