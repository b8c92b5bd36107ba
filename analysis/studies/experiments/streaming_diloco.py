"""How much of the time accelerators compute, by the rate between data centres: DiLoCo and its streaming variants.

Douillard et al., "Streaming DiLoCo with overlapping communication" (arXiv 2501.18512), §3.1: a simulation of two
replicas, of which only the rate between them counts. A step is 3 L - 1 equal parts for L layers: forward, backward with
respect to activations (not of the first layer) and to parameters. What is due is reduced layer by layer as backward
passes them, and a layer's next forward pass waits for its values, ``overlap`` steps later. Fragments are of three
layers, strided, each due once in H steps. Here the same schedule is a program of the virtual world: it computes, calls
the engine's collectives, and waits; the flow network says how long that takes. 16 bits a parameter travel, or 4.

Its Table 4 names, by size, method and utilisation, the least of 50 rates (0.1 to 1000 Gbit/s, evenly in the logarithm)
that reaches it. The claim is that ours is no more than ``STEPS`` of those rates away (a step is 21 %), and that methods
come in the same order.

INTELLECT-1 (arXiv 2412.01152), Table 2: blocking DiLoCo, 100 steps in 38 minutes, a ring of 8 bits a parameter. The
rate is the one at which the ring's closed form is the published time; the utilisation is what the run then has.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch

from analysis.identity import series
from analysis.studies import programs
from analysis.studies.claims import Claims, exactly
from analysis.studies.study import Panel, Request, Results, Study, published
from testbed.compute_model import ComputeModel
from testbed.engine.collectives.collectives import Collectives
from testbed.engine.collectives.operation import CollectiveMail
from testbed.engine.inbox import Inbox
from testbed.plan.model import NodePlan, Plan
from testbed.policy.collective.ring import ring
from testbed.simulation.run import SimulationOptions
from testbed.simulation.tcp_model import TcpModel
from testbed.world import Future, Work, World

RATES_GBPS = tuple(10 ** (-1 + 4 * place / 49) for place in range(50))  # the paper's
STEPS = 2
BITS_OF_ELEMENT = 16
FRAGMENT_LAYERS = 3
FIGURE = "streaming-diloco"
# Only the rate between the replicas counts: no headers, windows, or processors that copy and add.
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


@dataclass(frozen=True, slots=True)
class ModelSize:
    """A model: how many layers of equal size, parameters in all, and seconds of pure computation in a step."""

    layers: int
    parameters: float
    step_s: float


@dataclass(frozen=True, slots=True)
class Method:
    """Every ``period`` steps each fragment (0: the whole model) is due, and needed ``overlap`` steps later."""

    period: int
    fragment: int = 0
    overlap: int = 0
    bits: int = 16


SIZES = {"1B": ModelSize(24, 1e9, 0.1), "10B": ModelSize(48, 1e10, 0.8), "100B": ModelSize(108, 1e11, 4.9)}
METHODS = {
    "data-parallel": Method(1),
    "DiLoCo": Method(100),
    "streaming": Method(100, FRAGMENT_LAYERS),
    "streaming, overlapped": Method(100, FRAGMENT_LAYERS, 1),
    "streaming, overlapped, FP4": Method(100, FRAGMENT_LAYERS, 1, 4),
}
INTELLECT, INTELLECT_METHOD, INTELLECT_REPLICAS = ModelSize(42, 1e10, 38 * 60 / 100), Method(100, bits=8), 14


def due(method: Method, layers: int, step: int) -> list[int]:
    """Layers whose reduction begins as the backward pass of ``step`` leaves them; fragments are strided."""
    if not method.fragment:
        return list(range(layers)) if (step + 1) % method.period == 0 else []
    count = layers // method.fragment
    mine = {each for each in range(count) if step % method.period == each * method.period // count}
    return [layer for layer in range(layers) if layer % count in mine]


class TrainingReplica:
    """One replica's steps. ``reduce()`` begins the all-reduce of a layer."""

    def __init__(self, world: World, size: ModelSize, method: Method, reduce: Callable[[], Future[Any]]) -> None:
        self._world, self._size, self._method, self._reduce = world, size, method, reduce
        self._pending: dict[int, tuple[int, Future[Any]]] = {}  # by layer: the step that needs it
        self._share = 0.0

    async def step(self, number: int) -> None:
        """Forward and backward; waits for what this step needs, and begins what is due."""
        layers, part = self._size.layers, 1 / (3 * self._size.layers - 1)
        for layer in range(layers):
            if layer in self._pending and self._pending[layer][0] <= number:
                await self._compute(number)
                await self._world.wait(self._pending.pop(layer)[1], f"layer {layer}")
            self._share += part
        begins = set(due(self._method, layers, number))
        for layer in reversed(range(layers)):
            self._share += part * (2 if layer else 1)
            if layer in begins:
                await self._compute(number)
                assert layer not in self._pending, "a fragment is due again before it was needed"
                self._pending[layer] = (number + 1 + self._method.overlap, self._reduce())
        await self._compute(number)

    async def _compute(self, number: int) -> None:
        """Compute what has been put off, in one piece."""
        share, self._share = self._share, 0.0
        if share > 0:
            await self._world.compute(Work("step", number, steps=share), lambda: None)


def utilisation(size: ModelSize, method: Method, rate_gbps: float, replicas: int = 2) -> float:
    """Pure computation over time, in a period after the first two.

    Two replicas hand each other their gradients, and each adds them up, as is done where these are quantised. More of
    them use a ring, whose sums take turns with steps on a node's processor.
    """
    measured = max(method.period, 4)

    def program(world: World, plan: Plan, node: NodePlan, inbox: Inbox) -> Callable[[], Awaitable[object]]:
        mail = CollectiveMail(world, inbox)
        peers = Collectives(world, mail, [worker.name for worker in plan.training_workers])
        elements = round(size.parameters / size.layers * method.bits / BITS_OF_ELEMENT)
        layer = torch.empty(elements, dtype=torch.bfloat16, device="meta")

        def exchange() -> Future[Any]:
            call = peers.all_gather_parts((layer,), direct=True) if replicas == 2 else peers.all_reduce(layer, ring)
            return world.spawn(call, "exchange")

        async def train() -> None:
            replica = TrainingReplica(world, size, method, exchange)
            for number in range(3 * measured + 1):
                if node.rank == 0 and number % measured == 0:
                    world.record("period", t0=world.now())
                await replica.step(number)

        return train

    events = programs.run(_star(size, rate_gbps, replicas), program, FLUID)
    begins = [event["t0"] for node in events.values() for event in node if event["kind"] == "period"]
    return float(measured * size.step_s / (begins[3] - begins[2]))


def _star(size: ModelSize, rate_gbps: float, replicas: int) -> Plan:
    """Data centres with one replica each; rates of links are the rate given."""
    link = {"rate": f"{rate_gbps * 1e9:.0f} bit/s", "delay": "0 ms", "queue": "1 GiB"}
    lan = {"rate": "1 Tbit/s", "delay": "0 ms"}
    topology = programs.star({f"dc{number}": link for number in range(replicas)}, lan, "dc0")
    training = {"model": {"kind": "declared", "name": "resnet18"}, "data": "none", "batch": 1, "rounds": 1,
                "evaluate_every": 1, "compute": "modelled"}  # fmt: skip
    patience = {"dead_after": "1 h", "rendezvous": "24 h", "step_deadline": "700 h", "run_deadline": "720 h"}
    return programs.plan_of(
        {
            "name": FIGURE,
            "topology": topology,
            "training": training,
            "paradigm": "allreduce",
            "device": {"step_time": f"{size.step_s} s"},
            "timeouts": patience,
        },
        "simulate",
    )


@functools.cache
def reached(size: str, method: str, place: int) -> float:
    """Return the utilisation at the paper's rate number ``place``."""
    return utilisation(SIZES[size], METHODS[method], RATES_GBPS[place])


def least_rate(size: str, method: str, target: float) -> int:
    """Return the first of the paper's rates at which ``target`` is reached; utilisation never falls with the rate."""
    low, high = 0, len(RATES_GBPS) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(size, method, middle) >= target else (middle + 1, high)
    return low


def intellect(all_reduce_s: float) -> float:
    """Utilisation of INTELLECT-1 with an all-reduce of that many seconds; 1 without any.

    The outer gradients of DiLoCo are known when the last inner step is over: the model is one layer here.
    """
    if not all_reduce_s:
        return 1.0
    ring_bits = 2 * (INTELLECT_REPLICAS - 1) / INTELLECT_REPLICAS * INTELLECT.parameters * INTELLECT_METHOD.bits
    whole = ModelSize(1, INTELLECT.parameters, INTELLECT.step_s)
    return utilisation(whole, INTELLECT_METHOD, ring_bits / all_reduce_s / 1e9, INTELLECT_REPLICAS)


def place_of(rate_gbps: float) -> int:
    """Return the number of a rate of the paper's, which are printed with one decimal."""
    return min(range(len(RATES_GBPS)), key=lambda place: abs(RATES_GBPS[place] - rate_gbps))


def measure(request: Request, parameters: Mapping[str, tuple[str, ...]]) -> pd.DataFrame:
    """Least rates (``target``), utilisation at every third rate (no target), and INTELLECT-1."""
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for each in published(FIGURE):
        size, method = each.series.split(": ")
        if size in parameters["sizes"]:
            place = least_rate(size, method, each.x)
            rows.append({"size": size, "method": method, "target": each.x, "rate_gbps": RATES_GBPS[place],
                         "utilisation": reached(size, method, place), "published_gbps": each.y,
                         "steps": place - place_of(each.y)})  # fmt: skip
    for size, method in itertools.product(parameters["sizes"], METHODS):
        places = range(0, len(RATES_GBPS), 10 if request.quick else 3)
        shares = [reached(size, method, place) for place in places]
        rows += [{"size": size, "method": method, "rate_gbps": RATES_GBPS[place], "utilisation": share}
                 for place, share in zip(places, shares, strict=True)]  # fmt: skip
    rows += [{"size": "INTELLECT-1", "method": each.series, "utilisation": intellect(each.x), "published": each.y}
             for each in published("diloco-util")]  # fmt: skip
    return pd.DataFrame(rows)


def claims(found: Results) -> Claims:
    """Yield the claims; differences are counted in steps of the paper's rates, positive where ours is higher."""
    for size in (size for size in SIZES if size in set(found.runs["size"])):
        needed = {}
        for method in METHODS:
            rows = found.rows(size=size, method=method).dropna(subset="target")
            claim = f"{size}, {method}: every least rate within {STEPS} steps of the published one"
            yield exactly(claim, max(rows["steps"], key=abs), -STEPS, STEPS, " steps at most")
            needed[method] = float(rows.loc[rows["target"] == 0.95, "rate_gbps"].iloc[0])
        held = all(above >= below for above, below in itertools.pairwise(needed.values()))
        yield exactly(f"{size}: each method needs no more for 95 % than the one before it (1: yes)", float(held), 1, 1)
        ratio = needed["data-parallel"] / needed["streaming, overlapped, FP4"]
        yield exactly(f"{size}: data-parallel needs at least 100 times the rate", ratio, 100, unit=" times")
    for row in found.rows(size="INTELLECT-1").itertuples():
        claim = f"INTELLECT-1, {row.method}: {row.published:.1%} within 1 point"
        yield exactly(claim, float(row.utilisation), row.published - 0.01, row.published + 0.01)


def _panel(size: str) -> Panel:
    def overlay(axes: Any, found: Results) -> None:
        for number, method in enumerate(METHODS):
            mine = found.rows(size=size, method=method).dropna(subset="target")
            look = series(number)
            axes.plot(mine["published_gbps"], mine["target"], look.marker, mfc="white", mec=look.color, markersize=5,
                      label=None if number else "published (simulated, arXiv 2501.18512)")  # fmt: skip

    about = SIZES[size]
    return Panel(
        f"{size}: {about.layers} layers, {about.step_s:g} s a step",
        "utilisation",
        "rate_gbps",
        where={"size": size},
        series="method",
        draw=overlay,
        log="x",
        y_range=(0, 1.03),
        x_label="rate between data centres (Gbit/s)",
        y_label="share of time that accelerators compute",
    )


STUDY = Study(
    title="Streaming DiLoCo: utilisation by the rate between data centres",
    source="Douillard et al., arXiv 2501.18512, Table 4; INTELLECT-1, arXiv 2412.01152, Table 2",
    measure=measure, measures_on=("simulate",), parameters={"sizes": "1B,10B,100B"}, claims=claims,
    looks={method: series(number, method) for number, method in enumerate(METHODS)},
    panels=tuple(map(_panel, SIZES)), size_in=(10.8, 3.8),
)  # fmt: skip
