"""How fast the virtual world is: ``python -m testbed.run.virtual_benchmark`` prints a table of cases and their bounds.

    python -m testbed.run.virtual_benchmark                 all cases, one process each (a quarter of an hour)
    python -m testbed.run.virtual_benchmark fsa-1000x16     some
    python -m testbed.run.virtual_benchmark --list

Counted is processor time on one core, warm (the first round, in which torch loads what it needs, is left out), of one
round of the engine's own roles; memory is the process' largest. Bounds are aims for two shared cores at some 2.6 GHz.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

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
    """One case: processor seconds of ``what``, of building everything before, and the largest memory."""

    what: str
    cpu_s: float
    before_s: float
    memory_mb: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """``bound_s``, ``bound_mb``: what it is to stay below."""

    about: str
    run: Callable[[], Measured]
    bound_s: float
    bound_mb: float | None = None


def star(sites: int, workers: int, rounds: int = 4, **settings: object) -> Callable[[], Measured]:
    """Rounds through the engine's roles; ``settings`` are those of ``_STAR``."""
    usual = {"fold": "true", "variation": 0.0, "buckets": 1, "order": "fifo", "paradigm": "hips"}
    text = _STAR.format(**{**usual, "sites": sites, "workers": workers, "rounds": rounds, **settings})
    return lambda: _rounds(text, rounds)


def _rounds(text: str, rounds: int) -> Measured:
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
        # compiled from the start: a run of this size would load numba somewhere in its first rounds
        options = SimulationOptions(compiled=importlib.util.find_spec("numba") is not None)
        exits = simulate(plan, make_role, Path(folder), on_progress, options)
    for end in exits.values():
        if end.error is not None:
            raise end.error
    assert len(ends) == rounds
    per_round = (ends[-1][0] - ends[0][0]) / (rounds - 1)
    simulated_s = (ends[-1][1] - ends[0][1]) / (rounds - 1)
    return Measured("round", per_round, ends[0][0] - begin_s, _memory_mb(), f"{simulated_s:.3f} s simulated a round")


def ring_by_kernel(ranks: int = 1000) -> Measured:
    """The recurrence."""
    import numpy as np

    from testbed.simulation.ring import RingLinks, ring_times_s

    draw = np.random.default_rng(1)
    links = RingLinks(draw.uniform(0.005, 0.1, ranks), 8 / draw.uniform(1e8, 1e9, ranks), 5e-10)
    ring_times_s(1e8, links)
    begin_s = time.process_time()
    times = ring_times_s(1e8, links)
    return Measured("all-reduce", time.process_time() - begin_s, 0.0, _memory_mb(), f"{times.max():.3f} s simulated")


def flows(sites: int = 100, each: int = 160) -> Measured:
    """The flow network alone: flows of ``sites`` classes of different rates into one shared port."""
    from testbed.simulation.clock import Clock
    from testbed.simulation.flows import FlowClass, FlowNetwork

    def start(network: FlowNetwork, flow: FlowClass, size_bytes: float, _: object) -> None:
        network.start(flow, size_bytes, lambda: None)

    def run() -> float:
        clock = Clock()
        network = FlowNetwork(clock, [1e6 * (1 + i % 7) for i in range(sites)] + [3e8], 2, compiled=True)
        classes = [network.flow_class((i, sites)) for i in range(sites)]
        for i in range(sites * each):
            clock.at(0.01 * i, partial(start, network, classes[i % sites], 1e5 + 13.0 * i))
        begin_s = time.process_time()
        clock.finish()
        return time.process_time() - begin_s

    run()
    return Measured("flow", run() / (sites * each), 0.0, _memory_mb(), f"{sites} classes, {sites * each} flows")


def _memory_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


RING = "{kind: allreduce, algorithm: ring}"
P3 = "{kind: p3, slice: 700 KB, overlap: none}"
CASES: dict[str, Case] = {
    "flows": Case("the flow network alone, 100 classes", flows, 15e-6),
    "ring-1000-kernel": Case("ring all-reduce, 1000 nodes, by recurrence", ring_by_kernel, 0.1),
    "fsa-1000x16": Case("FSA, 1000 x 16 workers whose steps differ, unfolded",
                        star(1000, 16, fold="false", variation=0.5), 3.0),
    "fsa-1000x16-folded": Case("FSA, 1000 x 16 like workers, folded", star(1000, 16), 0.3),
    "fsa-1000x16-crews": Case("FSA, 1000 x 16 workers whose steps differ, folded", star(1000, 16, variation=0.5), 0.3),
    "fsa-1000x100-folded": Case("FSA, 100 000 like workers, folded", star(1000, 100), 2.0, 600),
    "p3-1000": Case("P3, 150 slices, 1000 data centres", star(1000, 1, 2, buckets=150, order=P3), 20.0),
    "ring-100-roles": Case("ring all-reduce, 100 nodes, by roles: a hundredth of the next one's messages",
                           star(100, 1, paradigm=RING), 0.2),
    "ring-1000-roles": Case("ring all-reduce, 1000 nodes, by roles", star(1000, 1, 2, paradigm=RING), 20.0),
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--list", action="store_true", help="name the cases and stop")
    parser.add_argument("--here", action="store_true", help="one case, in this process, as JSON")
    arguments = parser.parse_args()
    unknown = set(arguments.cases) - set(CASES)
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    if arguments.list:
        sys.stdout.writelines(f"{name:22} {case.about}\n" for name, case in CASES.items())
        return 0
    if arguments.here:
        (name,) = arguments.cases
        sys.stdout.write(json.dumps(asdict(CASES[name].run())) + "\n")
        return 0
    return _table(arguments.cases or list(CASES))


def _table(names: list[str]) -> int:
    kept = True
    for name in names:
        command = [sys.executable, "-m", "testbed.run.virtual_benchmark", name, "--here"]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        if ran.returncode:
            sys.stdout.write(f"{name:22} failed: {ran.stderr.strip().splitlines()[-1]}\n")
            kept = False
            continue
        measured = Measured(**json.loads(ran.stdout.splitlines()[-1]))
        kept &= _row(name, CASES[name], measured)
        sys.stdout.flush()
    return 0 if kept else 1


def _row(name: str, case: Case, measured: Measured) -> bool:
    within = measured.cpu_s <= case.bound_s and measured.memory_mb <= (case.bound_mb or float("inf"))
    unit, factor = ("us", 1e6) if case.bound_s < 1e-3 else ("s", 1.0)
    time_ = f"{measured.cpu_s * factor:9.3f} {unit} a {measured.what} (bound {case.bound_s * factor:g})"
    sys.stdout.write(
        f"{name:22} {'ok  ' if within else 'OVER'} {time_:42} {measured.memory_mb:5.0f} MB, "
        f"{measured.before_s:5.1f} s before; {measured.note}\n"
    )
    return within


if __name__ == "__main__":
    sys.exit(main())
