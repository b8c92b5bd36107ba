"""A two-tier parameter server in a few lines, on Plans of any size: enough of FSA to hold the virtual world against."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from testbed.compute_model import ComputeModel
from testbed.messages import Message, MessageKind
from testbed.plan.model import LinkPlan, NetworkPlan, NodePlan, Plan, SitePlan
from testbed.results.events import read
from testbed.settings.job import Device
from testbed.settings.series import Series
from testbed.simulation.run import RoleMaker, SimulationOptions
from testbed.simulation.tcp_model import TcpModel
from testbed.world import Role, Work, World
from tests.contract.tiny import tiny_plan

HUB = "hub/global0"
FLUID = SimulationOptions(
    tcp=TcpModel(goodput=1.0, slow_start=False, setup_round_trips=0, sharing_exponent=0),
    compute=ComputeModel(
        memory_bytes_per_s=float("inf"),
        work_overhead_s=0,
        message_cost_s=0,
        message_bytes_per_s=float("inf"),
        costs=None,
    ),
)


@dataclasses.dataclass(frozen=True)
class Shape:
    """A star of ``sites`` data centres around a hub; ``wan_bps`` one rate for all, or one per site."""

    sites: int = 3
    workers: int = 2
    wan_bps: float | Sequence[float] = 100e6
    hub_bps: float = 10e9
    lan_bps: float = 10e9
    wan_delay_s: float | Sequence[float] = 0.02
    lan_delay_s: float = 1e-4
    step_s: float | Sequence[float] = 0.1
    trace: Series | None = None


def star_plan(shape: Shape) -> Plan:
    """The Plan of that shape; the global server hangs alone on the hub's LAN of ``hub_bps``."""
    base = tiny_plan([HUB])
    servers = tuple(f"d{d:04d}/server0" for d in range(shape.sites))
    nodes = [NodePlan(name=HUB, role="global_server", data_center="hub", rank=0, children=servers)]
    sites = [SitePlan(name="hub", index=0, lan_rate_bps=shape.hub_bps, lan_delay_s=0.0, central=True)]
    links: list[LinkPlan] = []
    for d in range(shape.sites):
        nodes += _site_nodes(shape, d)
        sites.append(SitePlan(name=_site(d), index=d + 1, lan_rate_bps=shape.lan_bps, lan_delay_s=shape.lan_delay_s))
        links += _links(shape, d)
    routes = {link.name: (link.name,) for link in links}
    network = NetworkPlan(sites=tuple(sites), routers=(), links=tuple(links), routes=routes)
    timeouts = dataclasses.replace(base.timeouts, step_deadline_s=10_000.0)
    return dataclasses.replace(base, nodes=tuple(nodes), network=network, timeouts=timeouts)


def _site(d: int) -> str:
    return f"d{d:04d}"


def _of(value: float | Sequence[float], d: int) -> float:
    return value if isinstance(value, int | float) else value[d]


def _site_nodes(shape: Shape, d: int) -> list[NodePlan]:
    server = f"{_site(d)}/server0"
    workers = tuple(f"{_site(d)}/worker{w:02d}" for w in range(shape.workers))
    return [
        NodePlan(name=server, role="server", data_center=_site(d), rank=d, parents=(HUB,), children=workers),
        *(
            NodePlan(
                name=name,
                role="worker",
                data_center=_site(d),
                rank=d * shape.workers + w,
                parents=(server,),
                device=Device(step_time_s=_of(shape.step_s, d * shape.workers + w)),
            )
            for w, name in enumerate(workers)
        ),
    ]


def _links(shape: Shape, d: int) -> list[LinkPlan]:
    # the site's own LAN delay is part of the path, too
    rate, delay = _of(shape.wan_bps, d), _of(shape.wan_delay_s, d) - shape.lan_delay_s
    return [
        LinkPlan(
            name=f"{a}>{b}",
            source=a,
            target=b,
            rate_bps=rate,
            delay_s=delay,
            queue_bytes=int(rate / 4 * delay) + 100_000,
            rate_trace=shape.trace,
        )
        for a, b in ((_site(d), "hub"), ("hub", _site(d)))
    ]


def star_roles(size_bytes: int, rounds: int) -> RoleMaker:
    """FSA of one key of that size: push up, sum, push up, answer, answer."""
    tensor = torch.empty(size_bytes // 4, device="meta")

    def make_role(plan: Plan, node: NodePlan) -> Role:
        async def worker(world: World) -> list[float]:
            if node.rank == 0:
                world.record("train", rounds=rounds, workers=len(plan.with_role("worker")))
            ends = []
            for round_ in range(rounds):
                await world.compute(Work("step", round_), lambda: None)
                await world.send(node.parents[0], Message(MessageKind.PUSH, 0, round_, parts=(tensor,)))
                await world.receive(f"values of round {round_}")
                ends.append(world.now())
                world.record("round", t0=0.0, round=round_, loss=1.0, samples=1)
            return ends

        async def server(world: World) -> None:
            for round_ in range(rounds):
                for _ in node.children:
                    await world.receive(f"pushes of round {round_}")
                await world.compute(Work("sum", round_, size_bytes=size_bytes * len(node.children)), lambda: None)
                if node.parents:
                    await world.send(node.parents[0], Message(MessageKind.PUSH, 0, round_, parts=(tensor,)))
                    await world.receive(f"values of round {round_}")
                for child in node.children:
                    await world.send(child, Message(MessageKind.VALUE, 0, round_, parts=(tensor,)))

        return worker if node.role == "worker" else server  # type: ignore[return-value]

    return make_role


def heterogeneous(sites: int, workers: int, seed: int = 1) -> Shape:
    """Mixed rates (100-1000 Mbit/s), delays (5-100 ms) and lognormal step times, by seed."""
    draw = random.Random(seed)
    return Shape(
        sites,
        workers,
        wan_bps=[draw.choice((100e6, 200e6, 500e6, 1000e6)) for _ in range(sites)],
        wan_delay_s=[draw.uniform(0.005, 0.1) for _ in range(sites)],
        step_s=[draw.lognormvariate(-1.9, 0.5) for _ in range(sites * workers)],
    )


def read_events(run_directory: Path, node: str = "") -> list[dict[str, Any]]:
    """A node's log; without a name, those of all."""
    return list(read(run_directory / "events", node))
