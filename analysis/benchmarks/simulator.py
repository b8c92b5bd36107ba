"""Speed of the virtual world, against bounds.

    testbed bench simulator                      all cases (a quarter of an hour)
    testbed bench simulator --cases fsa-1000x16,flows

Each case runs in a process of its own. ``processor_s`` is the processor time on one core of one unit: of a warm round
(the first one, in which torch loads what it needs, is left out), of one all-reduce, of one flow, or of one packet: a
segment of a long transfer over one link, with its acknowledgement. ``before_s`` is the
processor time until the end of the first round, ``memory_mb`` the largest memory of the process. Bounds are aims for
two shared cores at about 2.6 GHz. ``messages_per_s``: messages between nodes in one second of the processor. The unit
of ``star-1000`` is the whole command `testbed run large/star-1000`: ``before_s`` is its part before the host starts,
and ``simulated_s`` the virtual time of a round.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

from analysis.benchmarks.harness import Row, listed
from testbed.plan.model import LinkPlan

_TIMEOUT_S = 1800
_STAR = """
version: 1
name: benchmark
seed: 1
run: {{on: simulate}}
topology:
  generator: {{kind: uneven_star, data_centers: {sites}, workers: {workers}}}
  lan: {{rate: 10 Gbit/s, delay: 0.1 ms}}
training: {{model: {{kind: declared, name: resnet50, buckets: {buckets}}}, data: none, batch: 8, rounds: {rounds},
            evaluate_every: 1000, compute: modelled}}
device: {{step_time: 1 s, variation: {variation}}}
order: {order}
paradigm: {paradigm}
simulation: {{fold: {fold}}}
timeouts: {{rendezvous: 24 h, step_deadline: 240 h, run_deadline: 480 h}}
"""


@dataclass(frozen=True, slots=True)
class Measured:
    """The processor time of a unit, that of everything before the first unit, and the simulated time of a unit (s)."""

    processor_s: float
    before_s: float
    simulated_s: float


@dataclass(frozen=True, slots=True)
class Case:
    """A case of the benchmark. ``run`` measures it; ``bound_s`` and ``bound_mb`` are bounds of its unit."""

    summary: str
    run: Callable[[], Measured]
    bound_s: float
    bound_mb: float = float("inf")
    messages: int = 0  # messages in a unit; 0 if it has none


def star(sites: int, workers: int, rounds: int = 4, **settings: object) -> Callable[[], Measured]:
    """Return a function that measures rounds of the scenario ``_STAR`` with ``settings``, by the engine's roles."""
    usual = {"fold": "true", "variation": 0.0, "buckets": 1, "order": "{kind: fifo, slice: whole}", "paradigm": "hips"}
    text = _STAR.format(**{**usual, "sites": sites, "workers": workers, "rounds": rounds, **settings})
    return partial(rounds_of, text, rounds)


def ring(nodes: int, rounds: int = 4) -> Callable[[], Measured]:
    """Return a function that measures all-reduces around a ring of data centres with one worker each."""
    # by default, each chunk would be up to eight messages; only keys on servers are cut into slices
    return star(nodes, 1, rounds, paradigm="{kind: allreduce, algorithm: ring, segments: 1}", order="fifo")


def rounds_of(text: str, rounds: int) -> Measured:
    """Measure the rounds of the scenario with this text."""
    import torch

    from testbed.engine.roles import make_role
    from testbed.plan.build import build_plan
    from testbed.scenario.load import loads
    from testbed.simulation.run import SimulationOptions, simulate

    torch.set_num_threads(1)
    begin_s = time.process_time()
    plan = build_plan(loads(text))
    ends: list[tuple[float, float]] = []
    watched = plan.training_workers[0].name

    def on_progress(event: dict[str, Any]) -> None:
        if event["kind"] == "round" and event["node"] == watched:
            ends.append((time.process_time(), event["t"]))

    with tempfile.TemporaryDirectory() as folder:
        # compile at the start: otherwise, a run of this size would load numba sometime in its first rounds
        options = SimulationOptions(compiled=True)
        exits = simulate(plan, make_role, Path(folder), on_progress, options)
    for end in exits.values():
        if end.error is not None:
            raise end.error
    assert len(ends) == rounds
    first_s, first_t = ends[0]
    last_s, last_t = ends[-1]
    return Measured((last_s - first_s) / (rounds - 1), first_s - begin_s, (last_t - first_t) / (rounds - 1))


def flows(sites: int = 100, each: int = 160) -> Measured:
    """Measure only the flow network: flows of ``sites`` classes with different rates into one shared port."""
    from testbed.simulation.clock import Clock
    from testbed.simulation.flows.network import FlowClass, FlowNetwork

    def start(network: FlowNetwork, flow: FlowClass, size_bytes: float, _: object) -> None:
        network.start(flow, size_bytes, lambda: None)

    def run() -> tuple[float, float]:
        clock = Clock()
        network = FlowNetwork(clock, [1e6 * (1 + i % 7) for i in range(sites)] + [3e8], compiled=True)
        classes = [network.flow_class((i, sites)) for i in range(sites)]
        for i in range(sites * each):
            clock.at(0.01 * i, partial(start, network, classes[i % sites], 1e5 + 13.0 * i))
        begin_s = time.process_time()
        clock.finish()
        return time.process_time() - begin_s, clock.now

    run()
    took_s, simulated_s = run()
    return Measured(took_s / (sites * each), 0.0, simulated_s)


def packets(control: str, megabytes: int = 200) -> Measured:
    """Measure only the packet network: one long transfer of 1-MB messages over 100 Mbit/s and 20 ms."""
    from testbed.simulation.clock import Clock
    from testbed.simulation.packets.connection import PacketConnection
    from testbed.simulation.packets.engine import PacketEngine
    from testbed.simulation.packets.segment import SEGMENT_BYTES
    from testbed.simulation.paths import SitePath, WanLink
    from testbed.simulation.tcp_model import TcpModel

    def run() -> tuple[float, float]:
        clock = Clock()
        engine = PacketEngine(clock, compiled=True)
        plan = LinkPlan(name="", source="a", target="b", rate_bps=100e6, delay_s=0.02, queue_bytes=256_000)
        paths = []
        for _ in range(2):
            ports = engine.add_port(1e9), engine.add_port(1e9)
            paths.append(engine.add_path((engine.add_link(WanLink(plan), Random(1), 0),), ports, 0.0))
        model = TcpModel(congestion_control=control, unsent_limit_bytes=131_072)
        way = SitePath("wan", (), 0.0, delay_s=0.02)
        connection = PacketConnection(engine, way, (paths[0], paths[1]), model, control, lambda message: None)
        for number in range(megabytes):
            connection.send(1e6, 0, number)
        begin_s = time.process_time()
        clock.finish()
        return time.process_time() - begin_s, clock.now

    run()
    took_s, simulated_s = run()
    segments = megabytes * 1e6 / SEGMENT_BYTES
    return Measured(took_s / segments, 0.0, simulated_s / segments)


def star_1000() -> Measured:
    """Measure the command ``testbed run large/star-1000`` with all of its processes."""
    from testbed.results.summary import read_result

    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = [sys.executable, "-m", "testbed.cli.main", "run", "large/star-1000", "--out", str(run)]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        begin_s = time.time()
        subprocess.run(command, check=True, timeout=_TIMEOUT_S, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        round_s = float(read_result(run / "result.json")["round_time_s"])
        prepared_s = (run / "host.log").stat().st_mtime - begin_s  # the log is created when the host process starts
    return Measured(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, prepared_s, round_s)


def _messages(workers: int, keys: int = 1) -> int:
    """Return the number of pushes and values in a round of FSA over a thousand data centres."""
    return 2 * 1000 * (workers + 1) * keys


P3 = "{kind: p3, slice: 700 KB, overlap: none}"
CASES = {
    "flows": Case("the flow network alone, 100 classes", flows, 15e-6),
    "packets-cubic": Case("the packet network alone, CUBIC", partial(packets, "cubic"), 1e-6),
    "packets-bbr": Case("the packet network alone, BBR", partial(packets, "bbr"), 1e-6),
    "fsa-1000x16": Case(
        "FSA, 1000 x 16 workers whose steps differ, unfolded",
        star(1000, 16, fold="false", variation=0.5),
        3.0,
        messages=_messages(16),
    ),
    "fsa-1000x16-folded": Case("FSA, 1000 x 16 like workers, folded", star(1000, 16), 0.3, messages=_messages(1)),
    "fsa-1000x16-groups": Case("FSA, 1000 x 16 workers whose steps differ, folded", star(1000, 16, variation=0.5), 0.3),
    "fsa-1000x100-folded": Case("FSA, 100 000 like workers, folded", star(1000, 100), 2.0, 600),
    "p3-1000": Case(
        "P3, 150 slices, 1000 data centres", star(1000, 1, 2, buckets=150, order=P3), 20.0, messages=_messages(1, 150)
    ),
    "ring-100-roles": Case(
        "ring all-reduce, 100 nodes, by roles: a hundredth of the next one's messages", ring(100), 0.2
    ),
    "ring-1000-roles": Case("ring all-reduce, 1000 nodes, by roles", ring(1000, 2), 20.0, messages=2 * 999 * 1000),
    "star-1000": Case("the command testbed run large/star-1000", star_1000, 6.0),
}


def run_case(name: str) -> Row:
    case = CASES[name]
    measured = case.run()
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "case": name.ljust(20),
        "processor_s": measured.processor_s,
        "bound_s": case.bound_s,
        "memory_mb": memory_mb,
        "before_s": measured.before_s,
        "simulated_s": measured.simulated_s,
        "messages_per_s": case.messages / measured.processor_s if case.messages else None,
        "ok": measured.processor_s <= case.bound_s and memory_mb <= case.bound_mb,
    }


def measure(options: argparse.Namespace) -> Iterator[Row]:
    unknown = set(options.cases) - set(CASES)
    if unknown:
        raise SystemExit(f"unknown case {', '.join(sorted(unknown))}; known: {', '.join(CASES)}")
    for name in options.cases or CASES:
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            yield pool.submit(run_case, name).result(_TIMEOUT_S)


ARGUMENTS = {
    "--cases": {
        "type": listed(str),
        "default": (),
        "metavar": "CASE,…",
        "help": "; ".join(f"{name}: {case.summary}" for name, case in CASES.items()),
    },
}
