"""The summary of one run: tables for the terminal and for ``summary.txt``."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from analysis import numbers
from testbed.display import look

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

    if run.result is None:
        return [Text(f"{run.name}: {run.status.state}; no result yet. {run.status.message}".strip())]
    shown: list[RenderableType] = [answer(run), traffic(run), *faults(run)]
    if run.result["rounds"] and run.program is None:
        shown.append(time_split(run))
    return [*shown, *(Text(line) for line in trust(run))]


def answer(run: StoredRun) -> Table:
    """Return rounds, accuracy and times."""
    result = run.result
    assert result is not None
    title = f"{result['name']} on {result['back_end']}: {result['status']}"
    if run.program is not None:
        return look.table(title, "", ">value", "", rows=_of_program(run, result))
    target = run.plan["training"]["target_accuracy"]
    rows = (
        ("rounds", str(result["rounds"]), f"of at most {run.plan['training']['rounds']}"),
        *_resumed(result),
        ("steps", numbers.per_worker(result, "steps"), "per worker"),
        ("samples", numbers.per_worker(result, "samples"), "per worker"),
        ("accuracy", look.number(result["accuracy"]), "test set"),
        ("round time", look.seconds(result["round_time_s"]), "mean, without evaluation beside training"),
        *_first_rounds(run.fidelity),
        (f"time to {look.share(target)}" if target else "time to target", look.seconds(result["time_to_target_s"]),
         "" if target else "no target accuracy"),
        ("training", look.seconds(result["training_s"]), "run's clock"),
        ("whole command", look.seconds(result["duration_s"]), _clock_of(result)),
        ("parameters", (result["parameters_sha256"] or look.NONE)[:16], _AGREEMENT[result["parameters_agree"]]),
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
    return [(f"first {first['rounds']} rounds", look.seconds(first["measured_s"]), compared)]


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
    rows = [("processes", str(nodes), logs), ("run time", look.seconds(result["training_s"]), "run's clock")]
    if result["rounds"]:
        rows.append(("reports", str(result["rounds"]), "of steps, by each process that reports any"))
        rows.append(("time per report", look.seconds(result["round_time_s"]), "mean"))
    if result["accuracy"] is not None:
        rows.append(("accuracy", look.number(result["accuracy"]), "last reported"))
    return [*rows, ("whole command", look.seconds(result["duration_s"]), _clock_of(result))]


def traffic(run: StoredRun) -> Table:
    """Return WAN bytes per data centre."""
    assert run.result is not None
    if run.program is not None:
        moved = run.result["wan_payload_bytes"].items()
        both = ((site, look.size(each["up"]), look.size(each["down"])) for site, each in moved)
        return look.table("WAN links, all bytes", "data centre", ">up", ">down", rows=both)
    payload, headers = run.result["wan_payload_bytes"], run.result["wan_header_bytes"]
    rows = [
        (site, moved["up"], moved["down"], headers[site]["up"], headers[site]["down"])
        for site, moved in payload.items()
    ]
    lines = ((site, *map(look.size, counts)) for site, *counts in rows[:ROWS_SHOWN])
    shown = look.table("WAN traffic", "data centre", ">up", ">down", ">headers up", ">headers down", rows=lines)
    if left := rows[ROWS_SHOWN:]:
        sums = (sum(row[column] for row in left) for column in range(1, 5))
        shown.add_row(f"and {len(left)} more, together", *map(look.size, sums))
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
        shown.add_row(look.seconds(row["t_s"]), _happened(row), str(row["targets"] or row["message"] or ""),
                      look.seconds(late_s))  # fmt: skip
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
        shown.add_row(node, *(look.seconds(value) for value in parts))
    if len(split) > ROWS_SHOWN:
        shown.add_row(f"and {len(split) - ROWS_SHOWN} more nodes")
    return shown


def trust(run: StoredRun) -> list[str]:
    """Return the fidelity report in lines."""
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
    """Return a summary as plain text."""
    from rich.console import Console

    stream = io.StringIO()
    Console(file=stream, width=look.PIPE_WIDTH, force_jupyter=False, no_color=True, **look.AS_WRITTEN).print(
        *parts, sep="\n"
    )
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"
