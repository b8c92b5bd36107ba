"""Results as tables: the summary of one run, for the terminal and ``summary.txt``; comparisons and sweeps."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

from testbed import numbers
from testbed.display import look
from testbed.results import COMPLETED
from testbed.target import ACCURACY, LOSS, Target, learning_of, score_text, target_in, target_of_row

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from analysis.advise.advice import Advice
    from analysis.load import StoredRun
    from analysis.sweeps.points import Case, Point

LINES_SHOWN = 8  # limit for reasons, and for notes
FAULTS_SHOWN = 12
ROWS_SHOWN = 40  # limit for data centres, and for nodes

_AGREEMENT = {True: "identical on all workers", False: "not the same on all workers", None: ""}
_UNKNOWN = "not "  # rows without a value are left out unless their remark begins with this word


def summary_of(run: StoredRun, *, told: bool = False) -> list[RenderableType]:
    """Return the results, the traffic, the faults, the time per round, and the fidelity, as far as they exist.

    ``told`` means that the message of a failed run has been shown already.
    """
    from rich.text import Text

    from analysis.load import NOT_LOGGED

    result = run.result
    if result is None:
        return [Text(f"{run.name}: {run.status.state}; no result yet. {run.status.message}".strip())]
    message = [] if told or not result["message"] else [Text(result["message"])]
    if not result["rounds"] and run.program is None:
        head = f"{run.title}: {result['status']} before the first round was complete"
        trusted = trust(run) if result["status"] in COMPLETED else []  # explains a run that did nothing without failing
        head = f"{head}, after {numbers.seconds(result['duration_s'])}"
        return [Text(head), *faults(run), *message, *map(Text, trusted)]
    shown: list[RenderableType] = [answer(run), *traffic(run), *faults(run)]
    if run.program is None:
        shown.append(time_split(run) if run.logs_work else Text(NOT_LOGGED))
    return [*shown, *message, *(Text(line) for line in trust(run))]


def answer(run: StoredRun) -> Table:
    """Return rounds, accuracy and times."""
    result = run.result
    assert result is not None
    title = f"{run.title}: {result['status']}"
    if run.program is not None:
        return look.table(title, "", ">value", "", rows=_of_program(run, result))
    if run.traced is not None:
        return look.table(title, "", ">value", "", rows=_of_trace(run, result))
    maker = "worker" if "stages" not in result else "replica"
    rows = (
        _rounds(result, run.plan["training"]["rounds"]),
        *_resumed(result),
        ("steps", numbers.per_worker(result, "steps"), f"per {maker}"),
        ("samples", numbers.per_worker(result, "samples"), _samples_per_s(result, maker)),
        *_learning(target_in(run.plan["training"]), result),
        ("round time", numbers.seconds(result["round_time_s"]), _about_rounds(result)),
        ("step time", numbers.seconds(result.get("step_time_s")), "the same, per training step"),
        *_of_pipeline(result.get("stages")),
        *_first_rounds(run.fidelity),
        ("training", numbers.seconds(result["training_s"]), "run's clock"),
        ("whole command", numbers.seconds(result["duration_s"]), run.facilities.clock),
        ("parameters", (result["parameters_sha256"] or numbers.MISSING)[:16], _agreement(result)),
        *_frames(run),
    )
    known = [row for row in rows if row[1] != numbers.MISSING or row[2].startswith(_UNKNOWN)]
    return look.table(title, "", ">value", "", rows=known)


def _samples_per_s(result: Mapping[str, Any], maker: str) -> str:
    """Return the remark about samples, with their rate. ``maker`` is ``worker`` or, in a pipeline, ``replica``."""
    rate = result.get("samples_per_s")
    return f"per {maker}" if rate is None else f"per {maker}; {numbers.short(rate)} per second by all of them"


def _learning(target: Target | None, result: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return the scores at the end of a run, and the time at which the target was reached, with its score."""
    final = [(each, score_text(each, result.get(each)), "test set, at the end") for each in (ACCURACY, LOSS)]
    if target is None:
        return final
    name = f"time to {target.name}"
    time_s = result["time_to_target_s"]
    if time_s is None:
        return [*final, (name, numbers.MISSING, f"{_UNKNOWN}reached by two evaluations in a row")]
    at_target = result.get(f"{target.measure}_at_target")
    about = ""
    if at_target is not None:
        about = f"{target.measure} {score_text(target.measure, at_target)} then; the next evaluation kept to the target"
    if result.get("evaluations_to_target") == 1:
        about = f"or less: the first evaluation met it; {about}"
    return [*final, (name, numbers.seconds(time_s), about)]


def _rounds(result: Mapping[str, Any], most: int) -> tuple[str, str, str]:
    """Return the rounds of all workers or, if they differ, of the slowest and of the fastest worker."""
    about = f"of at most {most}" if result["rounds"] <= most else f"as the script says; training.rounds is {most}"
    if "rounds_per_worker" in result:
        about = f"of the slowest worker and of the fastest; at most {most} on the mean of all"
    return ("rounds", numbers.rounds_of_workers(result), about)


def _resumed(result: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return the round from which the run went on, if it began with a checkpoint of another run."""
    if "resumed_round" not in result:
        return []
    about = "rounds, steps, samples and bytes count from there"
    return [("resumed", f"after {numbers.counted(result['resumed_round'] + 1, 'round')}", about)]


def _agreement(result: Mapping[str, Any]) -> str:
    """Return whether workers end with equal parameters; in a pipeline, whether replicas do."""
    told = _AGREEMENT[result["parameters_agree"]]
    if not told or not result.get("stages"):
        return told
    if not any(result["stages"]["gradient_bytes"].values()):
        return "of all stages"
    return f"of all stages; {told.removesuffix('workers')}replicas"


def _of_pipeline(told: Mapping[str, Any] | None) -> list[tuple[str, str, str]]:
    """Return the results of a pipeline: waiting of stages, bytes between them, and memory of a stage."""
    if told is None:
        return []
    activations = sum(told["activation_bytes"].values())
    gradients = sum(told["gradient_bytes"].values())
    between = f"; {numbers.size(gradients)} between replicas" if gradients else ""
    return [
        ("bubble", numbers.share(told["bubble"]), "of the time from a step's first pass to its last: stages wait"),
        ("activations", numbers.size(activations), f"with their gradients{between}"),
        ("memory", numbers.size(told["memory_bytes"]), "of the stage that needs most, without buffers"),
    ]


def _first_rounds(fidelity: Mapping[str, Any] | None) -> list[tuple[str, str, str]]:
    """Return the duration of the first rounds in comparison with simulated ones, if this was measured."""
    first = (fidelity or {}).get("first_rounds")
    if not first:
        return []
    compared = f"{first['deviation']:+.1%} against a simulation packet by packet"
    which = "first round" if first["rounds"] == 1 else f"first {first['rounds']} rounds"
    return [(which, numbers.seconds(first["measured_s"]), compared)]


def _frames(run: StoredRun) -> list[tuple[str, str, str]]:
    """Return how messages between processes are protected. Runs without processes have no frames."""
    transport = run.plan["transport"]
    how = transport["mac"] + (", TLS" if transport["tls"] else "")
    where = "authentication code" + (", none in shared memory" if transport["shared_memory"] else "")
    return [("frames", how, where)] if run.facilities.has_processes else []


def _about_rounds(result: Mapping[str, Any]) -> str:
    """Return the remark about the time of a round; for a simulation, with the interval of exact runs."""
    about = "mean, without evaluation beside training"
    if (found := result.get("round_s")) is None:
        return about
    ends = numbers.between(numbers.seconds(found["low"]), numbers.seconds(found["high"]))
    return f"{about}; exact: {ends} (95 %)"


def _of_trace(run: StoredRun, result: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return the rows for a job that was traced elsewhere: its duration and its ranks."""
    assert run.traced is not None
    ended = run.tables["rounds"].groupby("node")["t_s"].max() - run.start_s
    first = ended.idxmin()
    last = ended.idxmax()
    about = f"{first} is done after {numbers.seconds(ended[first])}, {last} as the last one"
    return [
        ("job", numbers.seconds(result["training_s"]), "run's clock"),
        ("ranks", str(len(run.traced["ranks"])), about),
        _rounds(result, run.plan["training"]["rounds"]),
        ("round time", numbers.seconds(result["round_time_s"]), "mean over the ranks, of one pass through the trace"),
        *_first_rounds(run.fidelity),
        ("whole command", numbers.seconds(result["duration_s"]), run.facilities.clock),
        *_frames(run),
    ]


def _of_program(run: StoredRun, result: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return the rows for a user's program: processes, times, and reported numbers."""
    nodes = run.tables["nodes"]["node"].nunique()
    logs = "output in logs/" if (run.path / "logs").is_dir() else ""
    rows = [("processes", str(nodes), logs), ("run time", numbers.seconds(result["training_s"]), "run's clock")]
    if result["rounds"]:
        rows.append(("reports", str(result["rounds"]), "of steps, by each process that reports any"))
        rows.append(("time per report", numbers.seconds(result["round_time_s"]), "mean"))
    if result["accuracy"] is not None:
        rows.append(("accuracy", numbers.share(result["accuracy"]), "last reported"))
    return [*rows, ("whole command", numbers.seconds(result["duration_s"]), run.facilities.clock)]


def traffic(run: StoredRun) -> list[RenderableType]:
    """Return the bytes over the WAN by data centre, each counted once.

    If all bytes went to or from one data centre, the table shows the others.
    """
    from rich.text import Text

    from testbed.results.summary import wan_bytes_of

    result = run.result
    assert result is not None
    moved: Mapping[str, Mapping[str, int]] = result["wan_payload_bytes"]
    total = wan_bytes_of(result)
    if not total:
        return []
    about = _about_bytes(run, total)
    rows = [(site, each["up"], each["down"]) for site, each in moved.items()]
    hub = next((site for site, up, down in rows if up + down == total), None)
    head = (">sent", ">received")
    if hub is not None:
        about += f": {numbers.size(moved[hub]['down'])} to, {numbers.size(moved[hub]['up'])} from {hub}"
        head = (f">to {hub}", f">from {hub}")
        rows = [row for row in rows if row[0] != hub]
    shown = look.table("", "data centre", *head)
    for site, up, down in rows[:ROWS_SHOWN]:
        shown.add_row(site, numbers.size(up), numbers.size(down))
    if left := rows[ROWS_SHOWN:]:
        sent = sum(up for _, up, _ in left)
        received = sum(down for _, _, down in left)
        shown.add_row(f"and {len(left)} more, together", numbers.size(sent), numbers.size(received))
    return [Text(about, style="bold"), shown]


def _about_bytes(run: StoredRun, total: int) -> str:
    assert run.result is not None
    if run.program is not None:
        return f"{numbers.size(total)} over the WAN's links, headers included"
    headers = sum(each["up"] for each in run.result["wan_header_bytes"].values())
    outside = sum(each["up"] for each in run.result["wan_setup_bytes"].values())
    besides = f", besides {numbers.size(outside)} outside rounds, mostly first values" if outside > total / 100 else ""
    return f"{numbers.size(total)} over the WAN, and {numbers.size(headers)} of headers{besides}"


def faults(run: StoredRun) -> list[Table]:
    """Return faults, restarts and changes of the membership, if there were any.

    Times count from the start of training, as in the scenario and the figures; without training, from that of the run.
    """
    events = run.tables["faults"]
    missed = (run.result or {}).get("faults", {}).get("missed", ())
    if events.empty and not missed:
        return []
    at = "at" if run.tables["training"].empty else "training time"
    shown = look.table("faults", f">{at}", "what", "targets", ">late")
    rows: list[dict[str, Any]] = [
        {str(name): value for name, value in row.items()} for row in events.head(FAULTS_SHOWN).to_dict("records")
    ]
    for row in rows:
        late_s = None if row["late_s"] != row["late_s"] else row["late_s"]
        shown.add_row(
            numbers.seconds(row["t_s"] - run.start_s),
            _happened(row),
            str(row["targets"] or row["message"] or ""),
            numbers.seconds(late_s),
        )
    if len(events) > FAULTS_SHOWN:
        shown.add_row("", f"and {len(events) - FAULTS_SHOWN} more", "", "")
    for fault in missed:
        shown.add_row("never", f"{fault['fault']}: the run had ended", fault["targets"], numbers.MISSING)
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
    """Return the fidelity of the run with its reasons, and the notes."""
    assert run.result is not None
    verdict = run.result["fidelity"]
    lines = [f"fidelity: {verdict['status']}", *_listed(verdict["reasons"])]
    notes = verdict["notes"]
    return [*lines, *(["notes:", *_listed(notes)] if notes else [])]


def _listed(texts: Sequence[str]) -> list[str]:
    left = len(texts) - LINES_SHOWN
    return [*(f"  - {text}" for text in texts[:LINES_SHOWN]), *([f"  - and {left} more in fidelity.json"] * (left > 0))]


def as_text(parts: Iterable[RenderableType]) -> str:
    from rich.console import Console

    stream = io.StringIO()
    Console(file=stream, width=look.PIPE_WIDTH, force_jupyter=False, no_color=True, **look.AS_WRITTEN).print(
        *parts, sep="\n"
    )
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


# ---- several runs ----------------------------------------------------------------------------------------------------


def _of_whole_runs(target: Target) -> str:
    return f"{target.measure} at the end, WAN bytes of the whole run, after the target too"


def comparison_table(rows: list[dict[str, Any]]) -> Table:
    """Return a table with one row per run. Without a target, the heading says which time the speed-up compares."""
    target = target_of_row(rows[0])
    measure = learning_of(target)
    to_target = f">to {target.name}" if target else ">to target"
    speed_ups = {row.get("speed_up_of") for row in rows} - {None}
    of = " of a step" if speed_ups == {"step_time_s"} else ""
    shown = look.table(
        _of_whole_runs(target) if target else "",
        "run",
        f">{measure}",
        ">round time",
        ">step time",
        ">samples/s",
        to_target,
        f">speed-up{of}",
        ">WAN bytes",
        ">waiting",
    )
    for row in rows:
        doubt = "" if row["fidelity"] == "ok" else f"\nfidelity {row['fidelity']}"
        doubt += "" if row["status"] == "done" else f"\n{row['status']}"
        resumed = row.get("resumed_round")
        doubt += "" if resumed is None else f"\nresumed after {numbers.counted(resumed + 1, 'round')}"
        shown.add_row(
            f"{row['label']}\n{row['run']}{doubt}",
            _scores(measure, row[measure], row[f"{measure}_at_target"]),
            numbers.seconds(row["round_time_s"]),
            numbers.seconds(row["step_time_s"]),
            numbers.short(row["samples_per_s"]),
            numbers.seconds(row["time_to_target_s"]),
            numbers.factor(row["speed_up"]),
            numbers.size(row["wan_bytes"]) + ("" if resumed is None else " since"),
            numbers.share(row["waiting_share"]),
        )
    return shown


def _scores(measure: str, final: float | None, at_target: float | None) -> str:
    return score_text(measure, final) + ("" if at_target is None else f"\n{score_text(measure, at_target)} at target")


def advice_table(advice: Advice) -> Table:
    """Return a table with one row per simulated technique: its cost to reach the goal, with its interval."""
    from analysis.advise.output import cells, columns

    rows = [cells[:-1] for cells in cells(advice) if any(cell != numbers.MISSING for cell in cells[1:-1])]
    return look.table(advice.name, *columns(advice)[:-1], rows=rows)


def advice_reasons(advice: Advice) -> Iterator[str]:
    """Yield the meaning of the table's signs, and the reasons why techniques were left out."""
    from analysis.advise.advice import BEATEN
    from analysis.advise.conclusion import reasons

    if any(row.outcome == BEATEN for row in advice.rows):
        yield ">: beaten: followed for these rounds until it had taken so much, without two scores in a row at the goal"
    yield from reasons(advice.rows)


def sweep_table(cases: Sequence[Case]) -> Table:
    """Return a table with one row per point: medians over seeds with their range, and ratios to the base of its case.

    Ratios are paired by seed, as runs of one seed have the same data and the same first values.
    """
    rows = [row for case in cases for point in case.points for row in point.rows]
    timed = "round_time_s" if any(row["round_time_s"] is not None for row in rows) else "training_s"
    title = "median over seeds (least to most)"
    if any(len(case.points) > 1 for case in cases):
        bases = dict.fromkeys(case.base.label for case in cases)
        title += f"; × {', '.join(bases)}'s of the same seed (95 % interval)"
    target = next((found for found in map(target_of_row, rows) if found is not None), None)
    measure = learning_of(target)
    if target is not None:
        title += f"; {_of_whole_runs(target)}"
    shown = look.table(
        title,
        "",
        ">runs",
        f">{measure}",
        ">round time" if timed == "round_time_s" else ">run time",
        ">step time",
        ">to target",
        ">WAN bytes",
    )
    for case in cases:
        if case.told:
            shown.add_section()
            shown.add_row(case.told)
        for point in case.points:
            shown.add_row(*_point(point, case.base, timed, measure))
    return shown


def _point(point: Point, base: Point, timed: str, measure: str) -> Iterator[str]:
    """Yield the cells of one point. ``timed`` is the column for durations, ``measure`` is ``accuracy`` or ``loss``."""
    done = point.completed
    runs = f"{len(done)}/{len(point.rows)}" if len(done) < len(point.rows) else str(len(done))
    if wild := sum(row["status"] == "diverged" for row in done):
        runs += f", {wild} diverged"
    times = point.values("time_to_target_s")
    partly = f"\nin {len(times)} of {len(done)} runs" if 0 < len(times) < len(done) else ""
    yield from (point.label, runs, _median(point, measure, partial(score_text, measure)))
    yield _median(point, timed, numbers.seconds) + _ratio(point, base, timed)
    yield _median(point, "step_time_s", numbers.seconds, spread=False)
    yield _median(point, "time_to_target_s", numbers.seconds) + (partly or _ratio(point, base, "time_to_target_s"))
    yield _median(point, "wan_bytes", numbers.size) + _ratio(point, base, "wan_bytes")


def _median(point: Point, name: str, form: Callable[[float], str], *, spread: bool = True) -> str:
    """Return the median, and the range unless both ends look the same."""
    values = sorted(point.values(name))
    if not values:
        return numbers.MISSING
    ends = (form(values[0]), form(values[-1]))
    return form(median(values)) + (f"\n({numbers.between(*ends)})" if spread and ends[0] != ends[1] else "")


def _ratio(point: Point, base: Point, name: str) -> str:
    """Return the ratio to the base; empty for the base itself, and if any run of either point has no value."""
    ratio = None if point is base else point.ratio(base, name)
    if ratio is None:
        return ""
    interval = "" if ratio.count == 1 else f"\n({numbers.short(ratio.low)} to {numbers.short(ratio.high)})"
    return f"\n{numbers.factor(ratio.value)}{interval}"
