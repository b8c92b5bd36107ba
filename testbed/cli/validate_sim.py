"""Hold the simulator against the emulation: every technique at every rate and delay in both worlds.

Prints the error of the mean round at each point, the median, the 95th percentile and the worst, and how far the order
of the techniques agrees (Kendall's tau); writes errors.csv and error-map.png. Runs that are there are not run again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analysis.validation import Point, Verdict

HELP = "hold the simulator against the emulation over a grid of rates, delays and techniques"
_DONE = ("done", "degraded")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("scenario", type=Path, help="YAML file; its rates, delays and techniques are replaced")
    parser.add_argument("--rates", default="5 Mbit/s,20 Mbit/s,100 Mbit/s", help="of all links; default: %(default)s")
    parser.add_argument("--delays", default="2 ms,20 ms,100 ms", help="one way, of all links; default: %(default)s")
    parser.add_argument("--technique", action="append", default=[], metavar="NAME:PATH=VALUE[;…]",
                        help="a technique and what it sets; may be repeated; default: the scenario's own")  # fmt: skip
    parser.add_argument("--iterations", type=int, default=30, help="rounds of each run; default: %(default)s")
    parser.add_argument("--host", metavar="VALUE",
                        help="simulation.host of the simulated runs, as `testbed calibrate` prints it")  # fmt: skip
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="for all runs, in both worlds")
    parser.add_argument("--out", type=Path, default=Path("validation"), metavar="DIR", help="default: validation/")


@dataclass(frozen=True, slots=True)
class _Place:
    technique: str
    settings: tuple[str, ...]
    rate: str
    delay: str

    @property
    def name(self) -> str:
        return "-".join((self.technique, *(part.replace(" ", "").replace("/", "") for part in (self.rate, self.delay))))


def execute(arguments: argparse.Namespace) -> int:
    from analysis.validation import error_map, verdict, write_table

    points = [point for place in _places(arguments) if (point := _point(arguments, place)) is not None]
    found = verdict(points)
    write_table(points, arguments.out / "errors.csv")
    error_map(points, arguments.out / "error-map.png")
    if arguments.json:
        rows = [asdict(point) | {"error": point.error, "valid": point.valid} for point in points]
        print(json.dumps({"kind": "validation", "points": rows, **asdict(found)}))
    else:
        _print(points, found, arguments.out)
    return 0


def _places(arguments: argparse.Namespace) -> Iterator[_Place]:
    for text in arguments.technique or ["scenario:"]:
        name, _, settings = text.partition(":")
        own = tuple(part.strip() for part in settings.split(";") if part.strip())
        for rate in arguments.rates.split(","):
            for delay in arguments.delays.split(","):
                yield _Place(name, own, rate.strip(), delay.strip())


def _point(arguments: argparse.Namespace, place: _Place) -> Point | None:
    """Both runs of a point; ``None``, and why on standard error, where one has failed."""
    from analysis.validation import Point, products_of
    from testbed.units import parse_duration, parse_rate

    emulated = _run(arguments, place, "emulate", ())
    simulated = emulated and _run(arguments, place, "simulate", (arguments.host,) if arguments.host else ())
    if not emulated or not simulated:
        return None
    rate_bps, delay_s = parse_rate(place.rate), parse_duration(place.delay)
    times = emulated["iteration_time_s"], simulated["iteration_time_s"]
    caveat = "; ".join(emulated["fidelity"]["warnings"]) if emulated["fidelity"]["status"] != "ok" else ""
    return Point(place.technique, rate_bps, delay_s, *times, products_of(emulated, rate_bps, delay_s), caveat)


def _run(arguments: argparse.Namespace, place: _Place, world: str, host: tuple[str, ...]) -> dict[str, Any] | None:
    """The result of one run, made by the same command that a person would use."""
    path = arguments.out / f"{world}-{place.name}"
    settings = [
        "links[*].rate_trace=null", f"links[*].rate={place.rate}", f"links[*].delay={place.delay}",
        f"training.iterations={arguments.iterations}", "training.target_accuracy=null",
        f"training.evaluate_every={arguments.iterations}", *place.settings, *arguments.set,
        *(f"simulation.host={value}" for value in host),
    ]  # fmt: skip
    command = [sys.executable, "-m", "testbed.cli.main", "run", str(arguments.scenario), "--on", world,
               "--out", str(path), "--again", "--quiet"]  # fmt: skip
    told = path / "validation.json"
    if not (told.is_file() and json.loads(told.read_text()) == settings):
        chosen = [part for setting in settings for part in ("--set", setting)]
        ran = subprocess.run([*command, *chosen], capture_output=True, text=True, check=False)
        if ran.returncode:
            print(f"{path.name}: {(ran.stderr.strip().splitlines() or ['failed'])[-1]}", file=sys.stderr)
            return None
        told.write_text(json.dumps(settings))
    result: dict[str, Any] = json.loads((path / "result.json").read_text())
    return result if result["status"] in _DONE and result["iteration_time_s"] else None


def _print(points: list[Point], found: Verdict, out: Path) -> None:
    from analysis.validation import verdict
    from testbed.cli import look

    shown = look.table("", "technique", ">rate", ">delay", ">emulated", ">simulated", ">error", "")
    for point in points:
        shown.add_row(
            point.technique, f"{point.rate_bps / 1e6:g} Mbit/s", f"{point.delay_s * 1e3:g} ms",
            look.seconds(point.emulated_s), look.seconds(point.simulated_s), f"{point.error:+.1%}",
            point.why,
        )  # fmt: skip
    console = look.console()
    console.print(shown)
    valid = [point for point in points if point.valid]
    if valid and len(valid) < len(points):
        inside = verdict(valid)
        console.print(f"{inside.points} of them inside the claim: median error {inside.median:.1%}, "
                      f"worst {inside.worst:.1%}")  # fmt: skip
    tau = "one technique, no ranking" if found.tau is None else f"Kendall's tau {found.tau:.2f}"
    console.print(f"{found.points} points: median error {found.median:.1%}, 95 % below {found.percentile_95:.1%}, "
                  f"worst {found.worst:.1%}; {tau}")  # fmt: skip
    console.print(f"written: {out / 'errors.csv'}, {out / 'error-map.png'}", markup=False)
