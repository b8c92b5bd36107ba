"""Show a trace: how it was read, what it amounts to, a picture; or convert it. Without a name, list what there is."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from topologies.traces import Trace

HELP = "show a trace of rates, delays or losses, or convert it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trace", nargs="?", metavar="NAME|FILE", help="a trace of the library, or a file")
    parser.add_argument("--what", choices=("rate", "delay", "loss"), help="which quantity of the file (default: rate)")
    reading = parser.add_argument_group("how the file is read; found out unless said")
    reading.add_argument("--format", help="csv, mahimahi, pensieve, fcc, fcc-raw, hsdpa, iperf3 or skyplane")
    reading.add_argument("--unit", help="unit of its values, e.g. kbit/s")
    reading.add_argument("--time-unit", choices=("s", "ms", "us"), help="unit of its times")
    reading.add_argument("--step", metavar="TIME", help="count Mahimahi's packets over such times (100 ms)")
    reading.add_argument("--from", dest="source", metavar="END", help="first end of the pair, in a file of many")
    reading.add_argument("--to", dest="target", metavar="END", help="second end of the pair")
    change = parser.add_argument_group("changes, in this order")
    change.add_argument("--loop", action=argparse.BooleanOptionalAction, default=None, help="start again at its end")
    change.add_argument("--offset", metavar="TIME", help="begin so far into it")
    change.add_argument("--scale", type=float, default=1.0, metavar="FACTOR", help="multiply the values")
    change.add_argument("--speed", type=float, default=1.0, metavar="FACTOR", help="divide the times")
    change.add_argument("--resample", metavar="TIME", help="means over steps of such length")
    out = parser.add_argument_group("output")
    out.add_argument("--picture", type=Path, metavar="FILE", help="draw it (.png, .svg, .pdf)")
    out.add_argument("--out", type=Path, metavar="FILE", help="write it, in the format --as")
    out.add_argument("--as", dest="kind", choices=("csv", "mahimahi", "pensieve", "fcc"), help="csv unless said")


def execute(arguments: argparse.Namespace) -> int:
    if arguments.trace is None:
        return _list(arguments.json)
    name, trace = _read(arguments)
    trace = _changed(trace, arguments)
    if arguments.json:
        print(json.dumps(_as_json(name, trace)))
    else:
        _print(name, trace)
    if arguments.picture:
        _draw(name, trace, arguments.picture)
    if arguments.out:
        _convert(name, trace, arguments)
    if not arguments.json:
        for path in (arguments.picture, arguments.out):
            if path:
                print(f"written: {path}")
    return 0


def _list(as_json: bool) -> int:
    from testbed.cli import look
    from topologies.library import LIBRARY
    from topologies.shipped import RECIPES
    from topologies.traces import FORMATS

    if as_json:
        about = {name: RECIPES[name].about for name in LIBRARY}
        formats = {name: entry.about for name, entry in FORMATS.items()}
        print(json.dumps({"kind": "traces", "library": about, "formats": formats}))
        return 0
    shown = look.table("library (all synthetic)", "name", "of a", "what it is")
    for name in LIBRARY:
        shown.add_row(name, RECIPES[name].what, RECIPES[name].about)
    formats_table = look.table("formats", "name", "a file of it")
    for name, entry in FORMATS.items():
        formats_table.add_row(name, entry.about)
    look.console().print(shown, formats_table)
    return 0


def _read(arguments: argparse.Namespace) -> tuple[str, Trace]:
    from topologies.library import LIBRARY, library_path
    from topologies.shipped import RECIPES
    from topologies.traces import MAX_POINTS, Reading, read_trace
    from topologies.traces.model import MAX_READ

    name = arguments.trace
    shipped = name in LIBRARY and not Path(name).exists()
    reading = Reading(
        what=arguments.what or (RECIPES[name].what if shipped else "rate"), format=arguments.format,
        unit=arguments.unit, time_unit=arguments.time_unit, step_s=_time(arguments.step, "--step"),
        source=arguments.source, target=arguments.target, most_steps=MAX_READ if arguments.resample else MAX_POINTS,
    )  # fmt: skip
    return Path(name).name, read_trace(library_path(name) if shipped else Path(name), reading)


def _changed(trace: Trace, arguments: argparse.Namespace) -> Trace:
    from testbed.errors import ScenarioError
    from topologies.traces.change import looped, resampled, scaled, shifted, sped_up

    for option in ("scale", "speed"):
        if not 0 < getattr(arguments, option) < math.inf:
            raise ScenarioError(f"--{option}: {getattr(arguments, option):g} is not above 0")
    if arguments.loop is not None:
        trace = looped(trace, arguments.loop)
    trace = shifted(trace, _time(arguments.offset, "--offset") or 0.0)
    trace = sped_up(scaled(trace, arguments.scale), arguments.speed)
    step_s = _time(arguments.resample, "--resample")
    return resampled(trace, step_s) if step_s else trace


def _time(text: str | None, option: str) -> float | None:
    from testbed.errors import ScenarioError
    from testbed.units import UnitError, parse_duration

    if text is None:
        return None
    try:
        value = parse_duration(text)
    except UnitError as error:
        raise ScenarioError(f"{option}: {error}") from error
    if value <= 0:
        raise ScenarioError(f"{option}: {text} is not above 0")
    return value


def _writer(what: str) -> Callable[[float], str]:
    from testbed.units import format_duration, format_rate, format_share

    write: dict[str, Callable[[float], str]] = {"rate": format_rate, "delay": format_duration, "loss": format_share}
    return lambda value: write[what](float(f"{value:.4g}"))


def _print(name: str, trace: Trace) -> None:
    from testbed.cli import look
    from topologies.traces.change import summary

    told, value = summary(trace), _writer(trace.what)
    loops = f"starts again after {look.seconds(trace.period_s)}" if told.loops else "the last value stays"
    shown = look.table(f"{name}: {trace.what}", "", "")
    for row in (
        ("steps", f"{told.steps}, {look.seconds(told.step_s)} each (median), at most {look.seconds(told.longest_s)}"),
        ("length", f"{look.seconds(told.length_s)}; {loops}"),
        ("mean", f"{value(told.mean)}, standard deviation {value(told.deviation)}"),
        ("least, most", f"{value(told.least)}, {value(told.most)}"),
        ("5, 50, 95 % of the time", f"{value(told.p5)}, {value(told.median)}, {value(told.p95)}"),
        ("from step to step", f"{look.share(told.changes)} of the mean"),
        *(("note", note) for note in trace.notes),
    ):
        shown.add_row(*row)
    look.console().print(shown)


def _as_json(name: str, trace: Trace) -> dict[str, Any]:
    from topologies.traces.change import summary

    period = trace.period_s if math.isfinite(trace.period_s) else None
    return {"kind": "trace", "name": name, "what": trace.what, "format": trace.format, "notes": trace.notes,
            "summary": asdict(summary(trace)), "period_s": period, "times_s": trace.times_s,
            "values": trace.values}  # fmt: skip


def _draw(name: str, trace: Trace, path: Path) -> None:
    from analysis.figures.trace import draw
    from testbed.cli.pictures import save

    save(draw(trace, name, trace.notes[0] if trace.notes else ""), path)


def _convert(name: str, trace: Trace, arguments: argparse.Namespace) -> None:
    from testbed.cli.pictures import write
    from topologies.traces.write import to_text

    comments = (f"From {name}.", *trace.notes)
    write(arguments.out, to_text(trace, arguments.kind or "csv", comments))
