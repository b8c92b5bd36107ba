"""All-reduce on equal emulated links, or on loopback: measured time against the α–β–γ cost, and against libraries.

    python -m analysis.experiments.allreduce_times --ranks 4,6,8 --out times.json
    python -m analysis.experiments.allreduce_times --ranks 4 --on local --sizes 1,10,40

Emulated, each rank is a data centre of its own behind a link of ``--rate`` Mbit/s to one router, so that every message
of the algorithms here has a path for itself; the one-way delay between two ranks is ``--delay`` ms. All ranks
begin at the same moment of the one clock; the time is that until the last one has its sum, the least of
``--repeats``. The all-reduce of ``--libraries`` (Gloo's, MPICH's) runs in the very same processes, between them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from testbed.engine.collectives.collectives import Collectives
from testbed.engine.collectives.mail import CollectiveMail
from testbed.engine.inbox import Inbox
from testbed.engine.membership import Membership
from testbed.engine.roles import make_role
from testbed.plan.build import build_plan
from testbed.plan.model import NodePlan, Plan
from testbed.policy.collective import ALL_REDUCE
from testbed.policy.collective.cost import (
    LinkCost,
    butterfly_s,
    crossover_bytes,
    recursive_doubling_s,
    ring_s,
)
from testbed.policy.collective.predict import finish_times_s
from testbed.policy.collective.schedule import GroupShape
from testbed.realtime.fleet import Fleet, Launch
from testbed.realtime.node import AnyRole
from testbed.realtime.world import RealWorld
from testbed.run.distributed.group import ProcessGroup
from testbed.run.distributed.role import GROUPS
from testbed.scenario.load import loads

ALGORITHMS = ("ring", "butterfly", "recursive_doubling")
FORMS = {"ring": ring_s, "butterfly": butterfly_s, "recursive_doubling": recursive_doubling_s}
GOODPUT = 1448 / 1514  # of Ethernet frames that carry full TCP segments
LAN_DELAY_S = 1e-4
Call = Callable[[Tensor], Awaitable[object]]
HEAD_START_S = 0.3  # from the agreement to the start
DEADLINE_S = 900


@dataclass(frozen=True, slots=True)
class Row:
    """One algorithm at one size, in seconds; ``predicted_s`` is None on loopback, where nothing is known of links."""

    ranks: int
    size_bytes: int
    algorithm: str
    measured_s: float
    predicted_s: float | None

    @property
    def error(self) -> float | None:
        return None if self.predicted_s is None else self.measured_s / self.predicted_s - 1


@dataclass(frozen=True, slots=True)
class Settings:
    """What is measured."""

    ranks: int
    sizes: tuple[int, ...]
    algorithms: tuple[str, ...]
    on: str
    rate_mbps: float
    delay_ms: float
    repeats: int
    mac: str
    segments: int
    queue_ms: float
    control: str
    libraries: tuple[str, ...]

    @property
    def link(self) -> LinkCost:
        """Between two ranks; sums cost nothing that could be seen."""
        return LinkCost(self.delay_ms / 1e3 + 2 * LAN_DELAY_S, 8 / (self.rate_mbps * 1e6 * GOODPUT))


def plan_of(settings: Settings) -> Plan:
    """A star: one router, a data centre with one worker at the end of each link."""
    names = [f"dc{rank}" for rank in range(settings.ranks)]
    sites = [{"name": name, "workers": 1, **({"central": True} if name == "dc0" else {})} for name in names]
    link = {"rate": f"{settings.rate_mbps:g} Mbit/s", "delay": f"{settings.delay_ms / 2:g} ms"}
    if settings.queue_ms:
        link["queue"] = f"{settings.queue_ms:g} ms"
    scenario = {
        "version": 1, "name": "allreduce-times", "seed": 1, "run": {"on": settings.on},
        "topology": {
            "data_centers": sites, "routers": ["hub"],
            "links": [{"between": [name, "hub"], **link} for name in names],
            "lan": {"rate": "1 Gbit/s", "delay": f"{LAN_DELAY_S * 1e3:g} ms"},
        },
        "training": {"model": "mlp", "data": "digits", "rounds": 1, "evaluate_every": 1},
        "transport": {"mac": settings.mac, "congestion_control": settings.control}, "paradigm": "allreduce",
    }  # fmt: skip
    return build_plan(loads(json.dumps(scenario)), settings.on)


def bench(plan: Plan, node: NodePlan, settings: Settings) -> AnyRole:
    """Every algorithm at every size, at one rank. Returns (size, algorithm, start, end) of each repeat."""
    if node.role != "worker":
        return make_role(plan, node)

    async def run(world: RealWorld) -> None:
        inbox = Inbox(world)
        membership, mail = Membership(world, inbox, plan), CollectiveMail(world, inbox)
        reading = world.spawn(inbox.run(), "inbox")
        await membership.join()
        names = [worker.name for worker in plan.with_role("worker")]
        peers = Collectives(world, mail, names, shape=GroupShape(len(names), segments=settings.segments))
        groups = {name: await GROUPS[name](world, plan, peers) for name in settings.libraries}

        def theirs(name: str, group: ProcessGroup) -> Call:
            return lambda tensor: world.wait(group.start(tensor.clone()), name)

        def ours(name: str) -> Call:
            return lambda tensor: peers.all_reduce(tensor, ALL_REDUCE[name])

        calls = {name: ours(name) for name in settings.algorithms}
        calls |= {name: theirs(name, group) for name, group in groups.items()}
        for size in settings.sizes:
            tensor = torch.full((size // 4,), float(peers.rank))
            for name, call in calls.items():
                for repeat in range(settings.repeats + 1):  # the first one opens TCP's windows
                    start_s = await _together(world, peers)
                    await call(tensor)
                    world.record("timed", size=size, algorithm=name, repeat=repeat, t0=start_s)
        await membership.finish()
        await reading

    return run


async def _together(world: RealWorld, peers: Collectives) -> float:
    """Wait for the moment that the first rank names."""
    moment = torch.tensor([world.now() + HEAD_START_S], dtype=torch.float64)
    start_s = float(await peers.broadcast(moment))
    await world.sleep(max(0.0, start_s - world.now()))
    return start_s


def measure(settings: Settings, directory: Path) -> list[Row]:
    """All rows of one number of ranks; emulated, this must be called inside a sandbox."""
    plan = plan_of(settings)
    if settings.on == "local":
        _train(plan, settings, directory, None)
    else:
        from emulation.network import Emulation
        from emulation.probe import probe

        with Emulation(plan, probe(), lambda kind, **fields: None) as network:
            _train(plan, settings, directory, network)
    return _rows(settings, directory)


def _train(plan: Plan, settings: Settings, directory: Path, network: Any) -> None:
    launch = Launch(
        make_role=lambda plan, node: bench(plan, node, settings), event_directory=directory,
        enter=(lambda node: network.enter(node.name)) if network else None, epoch_ns=time.monotonic_ns(),
    )  # fmt: skip
    Fleet(plan, launch).run()


def _rows(settings: Settings, directory: Path) -> list[Row]:
    ends: dict[tuple[int, str, int], float] = {}
    for path in directory.glob("*.jsonl"):
        for event in map(json.loads, path.read_text().splitlines()):
            if event["kind"] == "timed" and event["repeat"]:
                key = (event["size"], event["algorithm"], event["repeat"])
                ends[key] = max(ends.get(key, 0.0), event["t"] - event["t0"])
    best: dict[tuple[int, str], float] = {}
    for (size, name, _), took_s in ends.items():
        best[size, name] = min(best.get((size, name), took_s), took_s)
    return [Row(settings.ranks, *key, took_s, _predicted(settings, *key)) for key, took_s in sorted(best.items())]


def _predicted(settings: Settings, size: int, name: str) -> float | None:
    if settings.on == "local" or name not in ALL_REDUCE:
        return None
    if name in FORMS and settings.segments == 1 and not settings.ranks & (settings.ranks - 1):
        return FORMS[name](settings.ranks, size, settings.link)
    schedules = [
        ALL_REDUCE[name](GroupShape(settings.ranks, segments=settings.segments), rank) for rank in range(settings.ranks)
    ]
    return max(finish_times_s(schedules, size, lambda a, b: settings.link, settings.link.beta_s))


def crossover(rows: Sequence[Row]) -> float | None:
    """Size at which recursive doubling stops being faster than the ring, between measured sizes; None if nowhere."""
    found = {(row.algorithm, row.size_bytes): row.measured_s for row in rows}
    sizes = sorted({row.size_bytes for row in rows})
    ahead = [found["recursive_doubling", size] - found["ring", size] for size in sizes]
    for low, high, before, after in zip(sizes, sizes[1:], ahead, ahead[1:], strict=False):
        if before <= 0 < after:
            return low + (high - low) * -before / (after - before)
    return None


def main() -> int:
    options = _parser().parse_args()
    from emulation.sandbox import is_inside, sandbox_command

    if options.on == "emulate" and not is_inside():
        command = sandbox_command([sys.executable, "-m", "analysis.experiments.allreduce_times", *sys.argv[1:]])
        return subprocess.run(command, timeout=DEADLINE_S, check=False, env=dict(os.environ)).returncode
    torch.set_num_threads(1)
    rows: list[Row] = []
    for ranks in options.ranks:
        settings = Settings(ranks, tuple(int(size * 1e6) for size in options.sizes), tuple(options.algorithms),
                            options.on, options.rate, options.delay, options.repeats, options.mac,
                            options.segments, options.queue, options.control, options.libraries)  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            mine = measure(settings, Path(folder))
        rows += mine
        _print(settings, mine)
    if options.out:
        options.out.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    return 0


def _print(settings: Settings, rows: Sequence[Row]) -> None:
    for row in rows:
        told = "" if row.error is None else f"  cost {row.predicted_s:7.3f} s  {row.error:+6.1%}"
        _write(f"{row.ranks} ranks {row.size_bytes / 1e6:8.3f} MB {row.algorithm:20} {row.measured_s:7.3f} s{told}")
    if settings.on == "emulate" and {"ring", "recursive_doubling"} <= set(settings.algorithms):
        expected = crossover_bytes(recursive_doubling_s, ring_s, settings.ranks, settings.link)
        met = crossover(rows)
        where = "outside these sizes" if met is None else f"{met / 1e6:.3f} MB, {met / expected - 1:+.0%}"
        told = f"{settings.ranks} ranks: ring overtakes recursive doubling at {expected / 1e6:.3f} MB"
        _write(f"{told}; measured {where}")


def _write(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    def numbers(text: str) -> list[float]:
        return [float(number) for number in text.split(",")]

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=lambda text: [int(number) for number in text.split(",")], default=[4, 6, 8])
    parser.add_argument("--sizes", type=numbers, default=[0.05, 0.5, 4], metavar="MB,…")
    parser.add_argument("--algorithms", type=lambda text: text.split(","), default=list(ALGORITHMS))
    parser.add_argument("--on", choices=("emulate", "local"), default="emulate")
    parser.add_argument("--rate", type=float, default=20, metavar="MBIT/S")
    parser.add_argument("--delay", type=float, default=10, metavar="MS")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--mac", choices=("hmac-sha256", "crc32"), default="hmac-sha256")
    parser.add_argument("--segments", type=int, default=1, help="parts in which our own are pipelined")
    parser.add_argument("--queue", type=float, default=0, metavar="MS", help="of each link, as time to drain")
    parser.add_argument("--control", default="cubic", help="TCP's congestion control")
    parser.add_argument("--libraries", type=lambda text: tuple(text.split(",")), default=("gloo",), help="gloo,mpi")
    parser.add_argument("--out", type=Path)
    return parser


if __name__ == "__main__":
    sys.exit(main())
