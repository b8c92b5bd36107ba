"""Show the statistics of a trace, draw it, or convert it. Without a name, list traces and formats."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.cli.options import Outcome, decimal, measured, save, write
from testbed.display import look
from testbed.errors import ScenarioError
from testbed.numbers import seconds, share
from testbed.units import parse_duration

if TYPE_CHECKING:
    from topologies.traces import Trace

HELP = "show a trace of rates, delays or losses, or convert it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trace", nargs="?", metavar="NAME|FILE", help="a trace of the library, or a file")
    parser.add_argument("--what", choices=("rate", "delay", "loss"), help="which quantity of the file (default: rate)")
    reading = parser.add_argument_group("how the file is read; auto-detected by default")
    reading.add_argument("--format", help="csv, mahimahi, pensieve, fcc, fcc-raw, hsdpa, iperf3 or skyplane")
    reading.add_argument("--unit", help="unit of its values, e.g. kbit/s")
    reading.add_argument("--time-unit", choices=("s", "ms", "us"), help="unit of its times")
    reading.add_argument(
        "--step", metavar="TIME", help="count Mahimahi's packets in bins of this width; default: 100 ms"
    )
    reading.add_argument("--from", dest="source", metavar="END", help="source of the pair, in a file of many")
    reading.add_argument("--to", dest="target", metavar="END", help="target of the pair")
    reading.add_argument(
        "--columns",
        type=_columns,
        default=(),
        metavar="ROLE=NAME,…",
        help="what columns of a csv hold, e.g. time=when,rate='bw in Mbit/s'",
    )
    change = parser.add_argument_group("changes, in this order")
    change.add_argument(
        "--loop", action=argparse.BooleanOptionalAction, default=None, help="repeat the trace from its end"
    )
    change.add_argument("--offset", metavar="TIME", help="begin at this time of the trace")
    change.add_argument("--scale", type=decimal, default=1.0, metavar="FACTOR", help="multiply the values")
    change.add_argument("--speed", type=decimal, default=1.0, metavar="FACTOR", help="divide the times")
    change.add_argument("--resample", metavar="TIME", help="replace values by their means over steps of this length")
    out = parser.add_argument_group("output")
    out.add_argument("--picture", type=Path, metavar="FILE", help="draw it (.png, .svg, .pdf)")
    out.add_argument("--out", type=Path, metavar="FILE", help="write it, in the format --as")
    out.add_argument("--as", dest="kind", choices=("csv", "mahimahi", "pensieve", "fcc"), help="default: csv")


def _columns(text: str) -> tuple[tuple[str, str], ...]:
    pairs = [entry.partition("=") for entry in text.split(",")]
    if not all(equals_sign for _, equals_sign, _ in pairs):
        raise argparse.ArgumentTypeError(f"'{text}' is not ROLE=NAME, separated by commas")
    return tuple((role.strip(), name.strip()) for role, _, name in pairs)


def execute(arguments: argparse.Namespace) -> Outcome:
    if arguments.trace is None:
        return _list(arguments.json)
    if arguments.kind and not arguments.out:
        raise ScenarioError("--as: has no effect without --out FILE")
    name, trace = _read(arguments)
    trace = _changed(trace, arguments)
    if not arguments.json:
        _print(name, trace)
    if arguments.picture:
        _draw(name, trace, arguments.picture)
    if arguments.out:
        _convert(name, trace, arguments)
    if arguments.json:
        return _as_json(name, trace)
    for path in filter(None, (arguments.picture, arguments.out)):
        print(f"written: {path}")
    return 0


def _list(as_json: bool) -> Outcome:
    from topologies.library import LIBRARY, trace_about
    from topologies.traces import FORMATS

    formats = {name: entry.about for name, entry in FORMATS.items()}
    library = [(name, *trace_about(name)) for name in LIBRARY]
    if as_json:
        return {"kind": "traces", "library": {name: about for name, _, about in library}, "formats": formats}
    look.console().print(
        look.table("library (all synthetic)", "name", "quantity", "what it is", rows=library),
        look.table("formats", "name", "a file of it", rows=formats.items()),
    )
    return 0


def _read(arguments: argparse.Namespace) -> tuple[str, Trace]:
    from topologies.library import find_trace
    from topologies.traces import MAX_POINTS, Reading, read_trace
    from topologies.traces.model import MAX_READ

    path, what = find_trace(arguments.trace)
    reading = Reading(
        what=arguments.what or what,
        format=arguments.format,
        unit=arguments.unit,
        time_unit=arguments.time_unit,
        step_s=_time(arguments.step, "--step"),
        source=arguments.source,
        target=arguments.target,
        columns=arguments.columns,
        most_steps=MAX_READ if arguments.resample else MAX_POINTS,
    )
    return Path(arguments.trace).name, read_trace(path, reading)


def _changed(trace: Trace, arguments: argparse.Namespace) -> Trace:
    from topologies.traces.change import looped, resampled, scaled, shifted, sped_up

    for option in ("scale", "speed"):
        factor = getattr(arguments, option)
        if not factor > 0:
            raise ScenarioError(f"--{option}: {factor:g} is not above 0")
        if math.isinf(factor):
            raise ScenarioError(f"--{option}: {factor:g} is not a finite number")
    if arguments.loop is not None:
        trace = looped(trace, arguments.loop)
    trace = shifted(trace, _time(arguments.offset, "--offset") or 0.0)
    trace = sped_up(scaled(trace, arguments.scale), arguments.speed)
    step_s = _time(arguments.resample, "--resample")
    return resampled(trace, step_s) if step_s else trace


def _time(text: str | None, option: str) -> float | None:
    """Return the seconds of an option; ``None`` if it is not given. Raise ``ScenarioError`` unless they are above 0."""
    value = measured(text, option, parse_duration)
    if value is not None and value <= 0:
        raise ScenarioError(f"{option}: {text} is not above 0")
    return value


def _writer(what: str) -> Callable[[float], str]:
    """Return a function that writes a value with its unit and four digits."""
    from testbed.units import format_duration, format_rate, format_share

    formats: dict[str, Callable[[float], str]] = {"rate": format_rate, "delay": format_duration, "loss": format_share}
    return lambda value: formats[what](float(f"{value:.4g}"))


def _print(name: str, trace: Trace) -> None:
    from topologies.traces.change import summary

    facts = summary(trace)
    value = _writer(trace.what)
    loops = f"repeats after {seconds(trace.period_s)}" if facts.loops else "then the last value holds"
    rows = [
        (
            "steps",
            f"{facts.steps}, {seconds(facts.step_s)} each (median), at most {seconds(facts.longest_s)}",
        ),
        ("length", f"{seconds(facts.length_s)}; {loops}"),
        ("mean", f"{value(facts.mean)}, standard deviation {value(facts.deviation)}"),
        ("minimum, maximum", f"{value(facts.least)}, {value(facts.most)}"),
        ("5, 50, 95 % quantile", f"{value(facts.p5)}, {value(facts.median)}, {value(facts.p95)}"),
        ("change per step", f"{share(facts.changes)} of the mean"),
        *([("outages", f"{facts.outages} of {facts.steps} steps: rates below 1 kbit/s")] if facts.outages else []),
        *(("note", note) for note in trace.notes),
    ]
    look.console().print(look.table(f"{name}: {trace.what}", "", "", rows=rows))


def _as_json(name: str, trace: Trace) -> dict[str, Any]:
    from topologies.traces.change import summary

    period = trace.period_s if math.isfinite(trace.period_s) else None
    return {
        "kind": "trace",
        "name": name,
        "what": trace.what,
        "format": trace.format,
        "notes": trace.notes,
        "summary": asdict(summary(trace)),
        "period_s": period,
        "times_s": trace.times_s,
        "values": trace.values,
    }


def _draw(name: str, trace: Trace, path: Path) -> None:
    from analysis.figures.trace import draw

    save(draw(trace, name, trace.notes[0] if trace.notes else ""), path)


def _convert(name: str, trace: Trace, arguments: argparse.Namespace) -> None:
    from topologies.traces.write import differences, to_text

    kind = arguments.kind or "csv"
    write(arguments.out, to_text(trace, kind, (f"From {name}.", *trace.notes)))
    for difference in differences(trace, kind):
        print(f"warning: {difference}", file=sys.stderr)
