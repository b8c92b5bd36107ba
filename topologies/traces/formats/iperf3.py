"""The JSON of ``iperf3 -J``: the measured rate, delay or loss becomes the trace of a link."""

from __future__ import annotations

import json
import math
from typing import Any

from topologies.text_file import TextFile
from topologies.traces.model import Reading, Trace, from_durations

_CURE = "run it again with: iperf3 -c HOST -J -i 1"


def parse(file: TextFile, reading: Reading) -> Trace:
    """Parse a report: rates from ``intervals[].sum``, delays as half the mean round trip of the streams, or losses as
    the share of lost UDP datagrams."""
    report = _load(file)
    steps = []
    for number, interval in enumerate(_intervals(file, report)):
        total = _get(file, interval, "sum", f"intervals[{number}]")
        if isinstance(total, dict) and total.get("omitted"):
            continue
        where = f"intervals[{number}].sum"
        duration_s = _number(file, total, "seconds", where)
        steps.append((0, duration_s, _value(file, interval, total, number, reading)))
    if not steps:
        file.refuse(None, "all intervals are marked 'omitted'", _CURE)
    return from_durations(file, steps, reading)


def _load(file: TextFile) -> Any:
    try:
        report = json.loads(file.text, parse_int=float)  # integers of any length become floats, perhaps infinite
    except json.JSONDecodeError as error:
        file.refuse(error.lineno, f"not valid JSON: {error.msg}", "was iperf3 interrupted? It must end by itself")
    except RecursionError:
        file.refuse(None, "not valid JSON: nested too deeply", _CURE)
    if not isinstance(report, dict):
        file.refuse(None, "expected a JSON object", _CURE)
    if report.get("error"):
        file.refuse(None, f"iperf3 failed: {str(report['error'])[:80]}", _CURE)
    return report


def _intervals(file: TextFile, report: Any) -> list[Any]:
    intervals = _get(file, report, "intervals", "the report")
    if not isinstance(intervals, list) or not intervals:
        file.refuse(None, "intervals is empty", f"an interval of 0 was asked for; {_CURE}")
    return intervals


def _value(file: TextFile, interval: Any, total: Any, number: int, reading: Reading) -> float:
    where = f"intervals[{number}].sum"
    if reading.what == "loss":
        if "lost_percent" not in total:
            file.refuse(None, f"{where} has no lost_percent", "loss is measured with UDP: iperf3 -u -J")
        return _number(file, total, "lost_percent", where) / 100
    if reading.what == "delay":
        streams = interval.get("streams")
        trips = [
            _number(file, stream, "rtt", f"intervals[{number}].streams[{index}]")
            for index, stream in enumerate(streams if isinstance(streams, list) else ())
            if isinstance(stream, dict) and "rtt" in stream
        ]
        if not trips:
            file.refuse(None, f"intervals[{number}] has no rtt", "take the sender's report of a TCP run")
        return sum(trips) / len(trips) / 2e6
    rate = _number(file, total, "bits_per_second", where)
    size = _number(file, total, "bytes", where)
    expected = size * 8 / _number(file, total, "seconds", where)
    if abs(rate - expected) > 0.05 * max(rate, expected):
        problem = f"{where}: bits_per_second is {rate:g}, but its bytes and seconds make {expected:g} bit/s"
        file.refuse(None, problem, "bytes for bits? Take the file as iperf3 wrote it")
    return rate


def _get(file: TextFile, holder: Any, key: str, where: str) -> Any:
    if not isinstance(holder, dict) or key not in holder:
        file.refuse(None, f"{where} has no '{key}'", "this is not a report of iperf3 -J")
    return holder[key]


def _number(file: TextFile, holder: Any, key: str, where: str) -> float:
    value = _get(file, holder, key, where)
    if not isinstance(value, float) or not math.isfinite(value) or (key == "seconds" and value <= 0):
        file.refuse(None, f"{where}.{key} is {repr(value)[:40]}", f"expected a number above 0; {_CURE}")
    return value
