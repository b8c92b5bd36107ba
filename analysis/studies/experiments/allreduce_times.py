"""All-reduce on equal emulated links, or on loopback: measured time against the α–β–γ cost, and against libraries.

Emulated, each rank is a data centre of its own behind a link of ``rate`` Mbit/s to one router, so that every message of
the algorithms here has a path for itself; the one-way delay between two ranks is ``delay`` ms. All ranks begin at the
same moment of the one clock; the time is that until the last one has its sum, the least of ``repeats``. The all-reduce
of ``libraries`` (Gloo's) runs in the very same processes, between them. ``queue``: of each link, in ms to
drain (0: the default); ``segments``: parts in which our algorithms are pipelined.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from analysis.identity import series
from analysis.studies import programs
from analysis.studies.claims import Claims, exactly, unresolved
from analysis.studies.papers.allreduce_ab import LOOKS, RIVALS, crossing
from analysis.studies.study import Panel, Request, Results, Study
from testbed.engine.collectives.collectives import Collectives
from testbed.engine.collectives.operation import CollectiveMail
from testbed.engine.inbox import Inbox
from testbed.execution.distributed.torch_group import make_group
from testbed.plan.model import NodePlan, Plan
from testbed.policy.collective import ALL_REDUCE
from testbed.policy.collective.predict import LinkCost, finish_times_s
from testbed.policy.collective.schedule import GroupShape
from testbed.realtime.world import RealWorld

LAN_DELAY_S = 1e-4
GOODPUT = 1448 / 1514  # payload per byte of an Ethernet frame
HEAD_START_S = 0.3  # from the agreement to the start
DEFAULTS = {"ranks": "4,6,8", "sizes_mb": "0.05,0.5,4", "algorithms": "ring,butterfly,recursive_doubling",
            "libraries": "gloo", "rate": "20", "delay": "10", "repeats": "3", "mac": "hmac-sha256", "segments": "1",
            "queue": "0", "control": "cubic"}  # fmt: skip
Parameters = Mapping[str, tuple[str, ...]]


def _star(ranks: int, asked: Parameters, on: str) -> Plan:
    link = {"rate": f"{asked['rate'][0]} Mbit/s", "delay": f"{float(asked['delay'][0]) / 2:g} ms"}
    link |= {"queue": f"{asked['queue'][0]} ms"} if float(asked["queue"][0]) else {}
    lan = {"rate": "1 Gbit/s", "delay": f"{LAN_DELAY_S * 1e3:g} ms"}
    topology = programs.star({f"dc{rank}": link for rank in range(ranks)}, lan, "dc0")
    transport = {"mac": asked["mac"][0], "congestion_control": asked["control"][0]}
    return programs.plan_of({"name": "allreduce-times", "topology": topology, "transport": transport,
                             "paradigm": "allreduce"}, on)  # fmt: skip


def _timed(asked: Parameters) -> programs.Program:
    """Return a program that runs every algorithm at every size, and records size, algorithm, repeat and start."""
    sizes = [int(float(size) * 1e6) for size in asked["sizes_mb"]]

    def program(world: RealWorld, plan: Plan, node: NodePlan, inbox: Inbox) -> Callable[[], Awaitable[object]]:
        mail = CollectiveMail(world, inbox)
        names = [worker.name for worker in plan.with_role("worker")]
        peers = Collectives(world, mail, names, shape=GroupShape(len(names), segments=int(asked["segments"][0])))

        def ours(name: str) -> Callable[[Tensor], Awaitable[object]]:
            return lambda tensor: peers.all_reduce(tensor, ALL_REDUCE[name])

        def theirs(name: str, group: Any) -> Callable[[Tensor], Awaitable[object]]:
            return lambda tensor: world.wait(group.start(tensor.clone()), name)

        async def measured() -> None:
            calls = {name: ours(name) for name in asked["algorithms"]}
            libraries = [name for name in asked["libraries"] if name]
            calls |= {name: theirs(name, await make_group(world, plan, peers, name)) for name in libraries}
            for size in sizes:
                tensor = torch.full((size // 4,), float(peers.rank))
                for name, call in calls.items():
                    for repeat in range(int(asked["repeats"][0]) + 1):  # the first one opens TCP's windows
                        moment = torch.tensor([world.now() + HEAD_START_S], dtype=torch.float64)
                        start_s = float(await peers.broadcast(moment))  # the moment that the first rank names
                        await world.sleep(max(0.0, start_s - world.now()))
                        await call(tensor)
                        world.record("timed", size=size, algorithm=name, repeat=repeat, t0=start_s)

        return measured

    return program


def measure(request: Request, parameters: Parameters) -> pd.DataFrame:
    """One row per number of ranks, size and algorithm; ``formula_s`` is missing on loopback and for libraries."""
    torch.set_num_threads(1)
    parts = []
    for on in request.on:
        for ranks in map(int, parameters["ranks"][:1] if request.quick else parameters["ranks"]):
            events = programs.run(_star(ranks, parameters, on), _timed(parameters))
            ends = pd.DataFrame([event for node in events.values() for event in node if event["kind"] == "timed"])
            ends = ends[ends["repeat"] > 0].assign(time_s=ends["t"] - ends["t0"], back_end=on, ranks=ranks)
            place = ["back_end", "ranks", "size", "algorithm"]
            last = ends.groupby([*place, "repeat"])["time_s"].max()
            part = last.groupby(place).min().reset_index()
            part["formula_s"] = [_predicted(ranks, *row, parameters) if on == "emulate" else None
                                 for row in zip(part["size"], part["algorithm"], strict=True)]  # fmt: skip
            parts.append(part)
    return pd.concat(parts, ignore_index=True).rename(columns={"size": "size_bytes", "algorithm": "variant"})


def _link(asked: Parameters) -> LinkCost:
    """Return the cost of the link between two ranks; that of sums is negligible."""
    return LinkCost(float(asked["delay"][0]) / 1e3 + 2 * LAN_DELAY_S, 8 / (float(asked["rate"][0]) * 1e6 * GOODPUT))


def _predicted(ranks: int, size: int, name: str, asked: Parameters) -> float | None:
    if name not in ALL_REDUCE:
        return None
    link, shape = _link(asked), GroupShape(ranks, segments=int(asked["segments"][0]))
    schedules = [ALL_REDUCE[name](shape, rank) for rank in range(ranks)]
    return max(finish_times_s(schedules, size, lambda a, b: link, link.beta_s))


def claims(found: Results) -> Claims:
    rows = found.runs.dropna(subset="formula_s")
    for name, group in rows.groupby("variant", sort=False):
        worst = float((group["time_s"] / group["formula_s"] - 1).abs().max())
        yield exactly(f"{name}: measured time within 15 % of its cost", worst, 0, 0.15, " off at most")
    for ranks, group in rows.groupby("ranks"):
        table = group.pivot_table(index="size_bytes", columns="variant", values=["time_s", "formula_s"])
        if set(RIVALS) <= set(group["variant"]):
            measured, cost = crossing(table["time_s"]), crossing(table["formula_s"])
            claim = f"{ranks} ranks: the ring overtakes recursive doubling where their costs cross, within 30 %"
            if measured is None or cost is None:
                yield unresolved(claim, "the two do not cross within the sizes measured")
            else:
                yield exactly(claim, measured / cost, 0.7, 1.3, " of it")


STUDY = Study(
    title="All-reduce: measured time against its cost", source="Hockney 1994; Thakur, Rabenseifner, Gropp 2005",
    measure=measure, parameters=DEFAULTS, on=("emulate",), measures_on=("emulate", "local"), sandboxed=True,
    claims=claims,
    looks={**LOOKS, "gloo": series(6, "Gloo")},
    panels=tuple(Panel(f"{ranks} ranks", "time_s", "size_bytes", kind="points", where={"ranks": ranks},
                       model="formula_s", log="xy", x_label="bytes summed (lines: cost)", y_label="s")
                 for ranks in (4, 6, 8)),
    size_in=(9.8, 3.6),
)  # fmt: skip
