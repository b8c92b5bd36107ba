"""Traces, graphs, and the tables that scenarios name."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from testbed.costs import REFERENCE
from testbed.errors import ScenarioError
from testbed.plan.build import build_plan
from testbed.scenario import load
from testbed.scenario.sweep import read_sweep
from tests.fuzz.texts import ZEROS, nonsense_number, spoilt
from tests.fuzz.trial import Input, no_regular_file
from tests.topologies.test_malformed_graphs import MALFORMED as BAD_GRAPHS
from tests.topologies.test_malformed_traces import FCC_RAW, INTERVAL, PAIR, SKYPLANE, report
from tests.topologies.test_malformed_traces import MALFORMED as BAD_TRACES
from tests.topologies.zoo import GML, SNDLIB, TRIANGLE, graphml
from topologies.readers import GraphReading, read_graph
from topologies.readers.base import RATE_UNITS
from topologies.traces import FORMATS, Reading, read_network_traces, read_trace
from topologies.traces.model import LIMITS, TIME_UNITS, UNITS, WHAT, Trace

ROOT = Path(__file__).parents[2]
_WORDS = (
    "nan",
    "inf",
    "-1",
    "1e400",
    "1_0",
    "٣",
    "",
    ",",
    "0",
    "1e-300",
    "1e300",
    "\x00",
    "9" * 400,
    "#",
    "[",
    '"',
    "time_s",
    "src",
    "-",
    ".",
    "e",
    "0x1",
    "None",
    "&#0;",
    "<x>",
    "]",
    "true",
    "{",
    "1e9",
    "\u2028",
    "1e7",
)


# ---- traces ---------------------------------------------------------------------------------------------------------


@cache
def _traces() -> tuple[tuple[str, dict[str, Any]], ...]:
    written = [path.read_text(encoding="utf-8") for path in (ROOT / "scenarios" / "traces").glob("*.csv")]
    good = (
        ("1\n2\n2\n3\n7\n", {"format": "mahimahi"}),
        ("0 1\n1 2\n2 1.5\n", {"format": "pensieve"}),
        ("time_s,loss\n0,0\n1,0.1\n", {"what": "loss"}),
        ("600000\n500000\n700000\n", {"format": "fcc"}),
        ("1 100 59.1 10.2 50000 1000\n2 1100 59.1 10.2 60000 1000\n", {"format": "hsdpa"}),
        ("time_s,rate_mbit_s\n0,5\n1,6\n2,0\n3,7\n", {}),
        (report(INTERVAL, INTERVAL), {"format": "iperf3"}),
        (SKYPLANE + "a,P,b,P,5e9,True\n", {"format": "skyplane", **PAIR}),
        (FCC_RAW + "1,2020-01-01 00:00:00,x,y,1,1,600000\n", {"format": "fcc-raw"}),
    )
    return (*((text[:3000], {}) for text in written), *good * 12, *((case[1][:3000], case[2]) for case in BAD_TRACES))


def trace(chance: Random, folder: Path) -> Input:
    """A trace, read with settings of any kind."""
    path = folder / "t.csv"
    if chance.random() < 0.02:
        what = no_regular_file(path, chance.randrange(6))
        return _of_trace(path, chance, f"a {what}")
    if chance.random() < 0.15:
        text, nonsense = _nonsense_trace(chance)
        path.write_text(text, encoding="utf-8")
        return Input(lambda: read_trace(path, Reading()), (path.name,), nonsense)
    text, settings = chance.choice(_traces())
    path.write_bytes(spoilt(text, chance, _WORDS))
    if chance.random() < 0.7:
        return Input(lambda: read_trace(path, Reading(**settings)), (path.name,), check=_check_trace)
    return _of_trace(path, chance)


def _of_trace(path: Path, chance: Random, nonsense: str = "") -> Input:
    what = chance.choice(WHAT)
    reading = Reading(
        what=what,
        format=chance.choice((None, None, *FORMATS)),
        unit=chance.choice((None, None, None, *UNITS[what])),
        time_unit=chance.choice((None, None, None, *TIME_UNITS)),
        step_s=chance.choice((None, None, 0.001, 1.0)),
        source=chance.choice((None, None, "a")),
        target=chance.choice((None, None, "b")),
    )
    if chance.random() < 0.1:
        return Input(lambda: read_network_traces(path), (path.name,), nonsense)
    return Input(lambda: read_trace(path, reading), (path.name,), nonsense, _check_trace)


def _check_trace(read: Trace) -> None:
    low, high, _ = LIMITS[read.what]
    assert all(low <= value <= high for value in read.values), "a value out of bounds"
    assert all(map(math.isfinite, read.times_s)) and read.times_s[0] == 0, "a time that is none"
    assert list(read.times_s) == sorted(set(read.times_s)), "times that do not rise"


def _nonsense_trace(chance: Random) -> tuple[str, str]:
    """A good trace but for one cell."""
    rows = [[str(time), str(chance.randint(1, 99))] for time in range(chance.randint(1, 5))]
    row = chance.choice(rows)
    at = chance.randrange(2)
    row[at], why = nonsense_number(row[at], chance)
    while "comma" in why or "not a number" in why:  # another cell, and so another mistake; or none
        row[at], why = nonsense_number("5", chance)
    if "point without" in why:  # 5. is a number in such files
        row[at], why = "5 5", "two numbers in a cell"
    return "time_s,rate_mbit_s\n" + "\n".join(map(",".join, rows)) + "\n", f"{why}: {row[at]}"


# ---- graphs ---------------------------------------------------------------------------------------------------------


@cache
def _graphs() -> tuple[tuple[str, str], ...]:
    whole = (("t.gml", GML), ("t.xml", SNDLIB), ("t.graphml", graphml(*TRIANGLE)))
    return whole * 6 + tuple((case[1], case[2]) for case in BAD_GRAPHS if len(case[2]) < 20_000)


def graph(chance: Random, folder: Path) -> Input:
    """A graph file, read by its reader or through a scenario."""
    name, text = chance.choice(_graphs())
    path = folder / name
    nonsense = ""
    if chance.random() < 0.02:
        nonsense = f"a {no_regular_file(path, chance.randrange(6))}"
    elif chance.random() < 0.1:
        text, nonsense = _nonsense_graph(chance)
        path = folder / "t.graphml"
        path.write_text(text, encoding="utf-8")
    else:
        path.write_bytes(spoilt(text, chance, _WORDS))
    if chance.random() < 0.3:
        return _used(path, chance, nonsense)
    sites = chance.choice((None, None, ("london", "paris"), ("x",), ()))
    filled = GraphReading(
        rate_bps=1e6, delay_s=0.01, external=True, rate_unit=chance.choice((None, *RATE_UNITS)), sites=sites
    )
    reading = filled if chance.random() < 0.7 else GraphReading()
    return Input(lambda: read_graph(path, reading), (path.name,), nonsense)


def _used(path: Path, chance: Random, nonsense: str) -> Input:
    scenario = path.with_name("s.yaml")
    filled = "rate: 10 Mbit/s, delay: 5 ms" if chance.random() < 0.7 else "scale: 2"
    scenario.write_text(
        f"version: 1\nname: x\nseed: 1\ntopology: {{use: {path.name}, {filled}}}\n"
        "training: {model: cnn, data: digits, rounds: 3}\n"
    )
    return Input(lambda: build_plan(load(scenario), "simulate"), (path.name, scenario.name), nonsense)


def _nonsense_graph(chance: Random) -> tuple[str, str]:
    zero = ord(chance.choice(ZEROS))
    speed, why = chance.choice(
        (
            ("".join(chr(zero + int(digit)) for digit in "1000000"), "digits of another script"),
            ("1_000_000", "an underscore"),
            ("-5", "below 0"),
            ("nan", "not a number"),
            ("1e30", "faster than any link"),
        )
    )
    return graphml(*TRIANGLE).replace("155000000.0", speed), why


# ---- tables ---------------------------------------------------------------------------------------------------------

_SCENARIO = """\
version: 1
name: x
seed: 1
topology:
  data_centers:
    - {{name: east, central: true, workers: 2}}
    - {{name: west, workers: 2}}
  links:
    - {{between: [east, west], rate: 20 Mbit/s, delay: 40 ms}}
{topology}training: {{model: cnn, data: digits, rounds: 3}}
{more}"""


def _cost_rows() -> str:
    return REFERENCE.read_text(encoding="utf-8")


_TABLES: dict[str, tuple[Callable[[], str], dict[str, str]]] = {
    "steps": (
        lambda: "worker,step_time_ms\neast/worker0,50\nwest,70\n",
        {"more": "device: {step_times: {file: t.csv}}\n"},
    ),
    "costs": (_cost_rows, {"more": "simulation: {costs: {file: t.csv}}\n"}),
    "traces": (
        lambda: "time_s,src,dst,rate_mbit_s,delay_ms\n0,east,west,5,10\n1,east,west,6,10\n",
        {"topology": "  traces: t.csv\n"},
    ),
    "rate": (lambda: "time_s,rate_mbit_s\n0,5\n1,6\n", {"topology": "  link_trace: t.csv\n"}),
}


def _is_missing(what: str, nonsense: str) -> bool:
    """Whether a cell is one without a value, which a trace may have."""
    return what in ("rate", "traces") and "not a number" in nonsense


def table(chance: Random, folder: Path) -> Input:
    """A CSV file that a scenario names, or a file of a sweep."""
    if chance.random() < 0.2:
        return _sweep(chance, folder)
    what = chance.choice(sorted(_TABLES))
    text, keys = _TABLES[what]
    path, scenario = folder / "t.csv", folder / "s.yaml"
    nonsense, how = "", chance.random()
    lines = text().splitlines()
    if how < 0.03:
        nonsense = f"a {no_regular_file(path, chance.randrange(6))}"
    elif how < 0.3:
        at = chance.randrange(1, len(lines)) if what != "costs" else chance.randrange(2, len(lines))
        cells = lines[at].split(",")
        before = cells[-1]
        while "," in cells[-1] or cells[-1] == before or cells[-1].endswith(".") or _is_missing(what, nonsense):
            cells[-1], nonsense = nonsense_number(before, chance)
        lines[at] = ",".join(cells)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    else:
        path.write_bytes(spoilt("\n".join(lines[-20:] if chance.random() < 0.1 else lines), chance, _WORDS))
    holes: dict[str, str] = {"topology": "", "more": "", **keys}
    body = _SCENARIO.format(**holes)
    if what == "rate":
        body = _SCENARIO.format(topology="", more="").replace("delay: 40 ms", "delay: 40 ms, rate_trace: {file: t.csv}")
    scenario.write_text(body, encoding="utf-8")
    return Input(lambda: build_plan(load(scenario), "simulate"), (path.name, scenario.name), nonsense)


def _sweep(chance: Random, folder: Path) -> Input:
    path = folder / "w.yaml"
    text = (
        "scenario: s.yaml\nsweep:\n  seeds: 5\n  grid:\n    codec: [none, fp16]\n"
        "    links[*].rate: [5 Mbit/s, 20 Mbit/s]\n"
        "  zip:\n    training.batch: [16, 32]\n    optimizer.learning_rate: [0.001, 0.002]\n"
    )
    (folder / "s.yaml").write_text(_SCENARIO.format(topology="", more=""), encoding="utf-8")
    nonsense = ""
    if chance.random() < 0.2:
        seeds, nonsense = chance.choice(
            (
                ("٣", "digits of another script"),
                ("1_0", "an underscore"),
                ("-1", "below 1"),
                ("[1, ٣]", "digits of another script"),
                ("0", "no seed"),
            )
        )
        path.write_text(text.replace("seeds: 5", f"seeds: {seeds}"), encoding="utf-8")
    else:
        path.write_bytes(spoilt(text, chance))

    def read() -> Any:
        scenario, sweep = read_sweep(path)
        settings = next(iter(sweep.settings()), {})
        overrides = [f"{key}={value}" for key, value in settings.items()]
        if not os.path.isfile(scenario):  # noqa: PTH113 - no name is too long for it
            raise ScenarioError(f"{path}: names no file")
        return load(scenario, overrides, sweeping=True)

    return Input(read, (path.name, "s.yaml", "--set", "sweep"), nonsense)
