"""Validate the simulator against the emulation, or exact runs: every technique at every rate and delay on both.

Prints the error of the mean round time at each point, the median, the 95th percentile and the worst, and the rank
correlation of the techniques (Kendall's tau, also with equal times as ties). Writes errors.csv and error-map.png. Each
back end is a sweep in a directory of its own, so that finished runs are not repeated, and a grid may be interrupted and
extended. Against exact runs the machine's speed and load have no effect. With --repeats every point runs several times
on both, each time with another seed: means are compared, and the first two measured runs with each other, which bounds
what any prediction of a single run can do. Where a queue overflows, microseconds decide which connection loses
packets. Exact runs of other seeds differ little in these, so vary steps, too: ``--set "device.variation=1 %"``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.cli.options import Outcome, add_cluster, check_jobs, scenario_file, whole
from testbed.cli.sweep_progress import progress
from testbed.display import look
from testbed.errors import ScenarioError
from testbed.numbers import counted, seconds
from testbed.results import COMPLETED

if TYPE_CHECKING:
    from analysis.validation import Agreement, ValidationPoint
    from testbed.execution.sweep import SweepJob
    from testbed.execution.sweep_points import SweepPoint

    Result = dict[str, Any]

HELP = "validate the simulator against the emulation over a grid of rates, delays and techniques"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("scenario", type=scenario_file, help="YAML file; its rates, delays and techniques are replaced")
    parser.add_argument("--rates", default="5 Mbit/s,20 Mbit/s,100 Mbit/s", help="of all links; default: %(default)s")
    parser.add_argument("--delays", default="2 ms,20 ms,100 ms", help="one way, of all links; default: %(default)s")
    parser.add_argument(
        "--technique",
        action="append",
        default=[],
        metavar="NAME:PATH=VALUE[;…]",
        help="a technique and what it sets; may be repeated; default: the scenario's own",
    )
    parser.add_argument(
        "--techniques",
        type=Path,
        metavar="FILE",
        help="YAML: NAME: {path: value, …} each, e.g. scenarios/large/techniques.yaml",
    )
    parser.add_argument("--rounds", type=whole, default=30, help="rounds of each run; default: %(default)s")
    parser.add_argument(
        "--warm-up",
        type=whole,
        default=0,
        metavar="ROUNDS",
        help="rounds at the start of each run that do not count: in the first ones TCP's windows grow "
        "until packets are lost; default: %(default)s",
    )
    parser.add_argument(
        "--against",
        choices=("emulate", "exact"),
        default="emulate",
        help="the back end that the simulation is compared with; default: %(default)s",
    )
    parser.add_argument(
        "--repeats",
        type=whole,
        default=1,
        metavar="N",
        help="run all with N seeds; compare means, and measured runs with each other",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="PATH=V,V",
        help="for all runs, on both back ends; each of several values makes a grid of its own; may be repeated",
    )
    parser.add_argument(
        "--costs",
        type=Path,
        metavar="FILE",
        help="simulation.costs of the simulated runs: what `testbed calibrate --costs` writes",
    )
    parser.add_argument("--jobs", type=whole, metavar="N", help="runs at once; default: cores in virtual time, else 1")
    parser.add_argument("--out", type=Path, default=Path("validation"), metavar="DIR", help="default: validation/")
    add_cluster(parser)


@dataclass(frozen=True, slots=True)
class _GridPoint:
    technique: str
    rate: str
    delay: str
    case: str
    settings: Mapping[str, str]


def execute(arguments: argparse.Namespace) -> Outcome:
    from analysis.identity import BACK_ENDS
    from analysis.validation import error_map, reproduced, verdict, write_table

    points = _points(arguments)
    found = verdict(points)
    itself = reproduced(points)
    write_table(points, arguments.out / "errors.csv")
    error_map(points, BACK_ENDS[arguments.against].label).savefig(arguments.out / "error-map.png", dpi=150)
    if arguments.json:
        rows = [asdict(point) | {"error": point.error, "valid": point.valid} for point in points]
        reproduced_by = asdict(itself) if itself else None
        return {"kind": "validation", **asdict(found), "reproduced": reproduced_by, "points": rows}
    _print(points, found, arguments)
    if itself:
        _print_verdict(f"measured again, {counted(itself.points, 'point')}", itself)
    return 0


def _points(arguments: argparse.Namespace) -> list[ValidationPoint]:
    """Return every grid point on both back ends, except points with a failed run; standard error names the cause."""
    check_jobs(arguments.jobs)
    for option, least in (("rounds", 1), ("warm_up", 0), ("repeats", 1)):
        if (number := getattr(arguments, option)) < least:
            raise ScenarioError(f"--{option.replace('_', '-')} {number}: at least {least}")
    if arguments.warm_up >= arguments.rounds:
        raise ScenarioError(f"--warm-up {arguments.warm_up}: of {arguments.rounds} rounds, none is left to be compared")
    places = _places(arguments)
    measured, simulated = (
        zip(*(_results(arguments, places, world, number) for number in range(arguments.repeats)), strict=True)
        for world in (arguments.against, "simulate")
    )
    found = zip(places, measured, simulated, strict=True)
    return [_point(place, real, virtual) for place, real, virtual in found if any(real) and any(virtual)]


def _places(arguments: argparse.Namespace) -> list[_GridPoint]:
    from testbed.scenario import sweep

    rounds = str(arguments.rounds)
    rate_path, delay_path = _paths_of_links(arguments.scenario)
    fixed = {
        "training.rounds": rounds,
        "training.target_accuracy": "null",
        "training.target_loss": "null",
        "training.evaluate_every": rounds,
    }
    if not rate_path.startswith("generator"):
        fixed["links[*].rate_trace"] = "null"
    given = sweep.from_options(arguments.set, (), None)
    varied = given.varied()
    named = sweep.read_techniques(arguments.techniques) if arguments.techniques else {}
    named |= sweep.from_texts(arguments.technique)
    return [
        _GridPoint(
            name,
            rate,
            delay,
            ", ".join(f"{path.rpartition('.')[2]}={common[path]}" for path in varied),
            {**fixed, rate_path: rate, delay_path: delay, **common, **own},
        )
        for common in given.settings()
        for rate in map(str.strip, arguments.rates.split(","))
        for delay in map(str.strip, arguments.delays.split(","))
        for name, own in (named or {"scenario": {}}).items()
    ]


def _paths_of_links(scenario: Path) -> tuple[str, str]:
    """Return the paths of the settings for the rate and delay of all links, with a generator or written-out links."""
    from testbed.scenario.reading.document import Mapping as Node
    from testbed.scenario.reading.files import read_document
    from testbed.shipped import path_of

    root = read_document(path_of(scenario))
    topology = root.entries.get("topology") if isinstance(root, Node) else None
    made = isinstance(topology, Node) and "generator" in topology.entries
    owner = "generator" if made else "links[*]"
    return f"{owner}.rate", f"{owner}.delay"


def _results(
    arguments: argparse.Namespace, places: list[_GridPoint], world: str, repeat: int = 0
) -> list[Result | None]:
    """Return the result of each grid point on one back end, with the scenario's seed plus ``repeat``.

    Finished runs of the same code are not repeated.
    """
    from testbed.execution import sweep
    from testbed.execution.sweep_points import points_of
    from testbed.scenario.load import load
    from testbed.scenario.sweep import SweepAxis, SweepSettings
    from testbed.shipped import path_of

    before = {"simulation.network": "packets"} if world == "simulate" else {}
    after: dict[str, str] = {}
    if world == "simulate" and arguments.costs:
        after["simulation.costs"] = _costs_text(arguments.costs)
    settings = ({**before, **place.settings, **after} for place in places)
    seed = load(arguments.scenario, on=world, sweeping=True).seed + repeat
    wanted = [
        SweepSettings(tuple(SweepAxis((path,), ((value,),)) for path, value in each.items()), (seed,))
        for each in settings
    ]
    points = [point for each in wanted for point in points_of(arguments.scenario, each, world)]
    directory = arguments.out / (f"{world}-{repeat + 1}" if repeat else world)
    job = sweep.SweepJob(
        directory=directory,
        scenario=path_of(arguments.scenario),
        sweep=SweepSettings(),
        points=points,
        jobs=arguments.jobs,
        cluster=arguments.cluster,
    )
    with progress(job, quiet=arguments.json) as shown:
        rows = sweep.execute(job, shown.take, shown.warn)
    ended = zip(places, points, rows, strict=True)
    return [_result(job, *each, arguments.warm_up) for each in ended]


def _costs_text(path: Path) -> str:
    """Return a table of costs as a value of ``simulation.costs``. Its file may lie anywhere."""
    from testbed.costs import read_costs
    from topologies.text_file import TextFile

    return json.dumps(json.dumps(read_costs(TextFile.read(path).rows, path.name)))


def _result(job: SweepJob, place: _GridPoint, point: SweepPoint, row: Mapping[str, Any], warm_up: int) -> Result | None:
    """Return the result of a run, with its mean round after ``warm_up`` rounds; ``None`` if there is none."""
    from testbed.results import tables
    from testbed.results.pipelines import rounds_of_replicas
    from testbed.results.summary import covered_round_time_s
    from testbed.simulation.tcp_model import TcpModel

    if row["status"] in COMPLETED and row["round_time_s"]:
        result: Result = json.loads((job.path(point) / "result.json").read_text())
        result["queue_bytes"] = min((link.queue_bytes for link in point.plan.network.links), default=0)
        result["loss_based"] = TcpModel.of(point.plan.transport).loss_based
        if warm_up:
            plan = json.loads((job.path(point) / "plan.json").read_text())
            rounds = rounds_of_replicas(tables.read(job.path(point), ["rounds"])["rounds"], plan)
            result["round_time_s"] = covered_round_time_s(rounds[rounds["round"] >= warm_up])
        return result
    cause = (row["message"].splitlines() or ["no round was completed"])[0]
    where = ", ".join(filter(None, (place.technique, place.rate, place.delay, place.case)))
    print(f"{where}: {row['status']}: {cause} ({job.path(point)})", file=sys.stderr)
    return None


def _point(place: _GridPoint, measured: Sequence[Result | None], simulated: Sequence[Result | None]) -> ValidationPoint:
    from analysis.validation import ValidationPoint, fill_of
    from testbed.units import parse_duration, parse_rate

    rate_bps = parse_rate(place.rate)
    delay_s = parse_duration(place.delay)
    real, virtual = ([result for result in repeats if result] for repeats in (measured, simulated))
    real_s, virtual_s = (tuple(result["round_time_s"] for result in each) for each in (real, virtual))
    causes, doubts = (
        [reason for result in each for reason in result["fidelity"]["reasons"]] for each in (real, virtual)
    )
    return ValidationPoint(
        place.technique,
        rate_bps,
        delay_s,
        statistics.mean(real_s),
        statistics.mean(virtual_s),
        fill=fill_of(real[0], rate_bps / 8 * 2 * delay_s, virtual[0]["queue_bytes"]),
        caveat="; ".join(dict.fromkeys(causes)),
        doubt="; ".join(dict.fromkeys(doubts)),
        repeats_s=real_s if len(real_s) > 1 else (),
        simulated_repeats_s=virtual_s if len(virtual_s) > 1 else (),
        case=place.case,
        loss_based=virtual[0]["loss_based"],
    )


def _print(points: list[ValidationPoint], found: Agreement, arguments: argparse.Namespace) -> None:
    from analysis.identity import BACK_ENDS
    from analysis.validation import verdict

    rows = [
        (
            point.technique,
            point.case,
            f"{point.rate_bps / 1e6:g} Mbit/s",
            f"{point.delay_s * 1e3:g} ms",
            seconds(point.measured_s),
            seconds(point.simulated_s),
            f"{point.error:+.1%}",
            point.why,
        )
        for point in points
    ]
    console = look.console()
    case = "case" if any(point.case for point in points) else ""
    against = BACK_ENDS[arguments.against].label
    columns = ("technique", case, ">rate", ">delay", f">{against}", ">simulated", ">error", "")
    console.print(look.table("", *columns, rows=rows))
    valid = [point for point in points if point.valid]
    if valid and len(valid) < len(points):
        _print_verdict(f"{len(valid)} of them within the claim", verdict(valid))
    _print_verdict(counted(found.points, "point"), found)
    console.print(f"written: {arguments.out / 'errors.csv'}, {arguments.out / 'error-map.png'}")


def _print_verdict(which: str, found: Agreement) -> None:
    from analysis.validation import RESOLUTION

    tau = "one technique, no ranking" if found.tau is None else f"Kendall's tau {found.tau:.2f}"
    if found.tau_resolved is not None:
        tau += f" ({found.tau_resolved:.2f} where differences below {RESOLUTION:.1%} are ties)"
    look.console().print(
        f"{which}: median error {found.median:.1%}, 95 % below {found.percentile_95:.1%}, "
        f"worst {found.worst:.1%}; {tau}"
    )
