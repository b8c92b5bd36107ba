"""How long transfers over emulated TCP take, and how long the virtual world says: its TCP model alone, nothing else.

Every point is a pair of nodes with a link of its own (``rates`` in Mbit/s, ``delays`` in ms, one way), all at once: one
sends messages of ``sizes_mb`` to the other over one connection. Each size is sent ``REPEATS`` times, with ``GAP_S`` of
silence before each, as rounds of training do; the first transfer finds a connection that has carried a few bytes, the
others (their median is ``warm_s``) one that has carried as much. A transfer is over when the other end has it whole, on
one clock. The same program runs in the virtual world. ``queue``: of each link, in ms to drain (0: the default).
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Mapping
from statistics import median
from typing import Any

import pandas as pd
import torch

from analysis.identity import series
from analysis.studies import programs
from analysis.studies.claims import Claims, exactly
from analysis.studies.study import Panel, Request, Results, Study
from testbed.engine.inbox import Inbox
from testbed.messages import Message, MessageKind
from testbed.plan.model import NodePlan, Plan
from testbed.world import World

REPEATS = 7
GAP_S = 0.3
DEADLINE_S = 600
HUB = {"rate": "500 Mbit/s", "delay": "0.1 ms"}
Parameters = Mapping[str, tuple[str, ...]]


def points(asked: Parameters) -> list[tuple[float, float]]:
    """(Mbit/s, ms) of every pair of nodes."""
    return list(itertools.product(map(float, asked["rates"]), map(float, asked["delays"])))


def _hub(asked: Parameters, on: str) -> Plan:
    """Return a Plan with a data centre per point that sends over its link, and one beside the hub that receives."""
    links: dict[str, dict[str, str]] = {}
    for number, (rate, delay) in enumerate(points(asked)):
        link = {"rate": f"{rate:g} Mbit/s", "delay": f"{delay:g} ms"}
        link |= {"queue": f"{asked['queue'][0]} ms"} if float(asked["queue"][0]) else {}
        links |= {f"from{number}": link, f"to{number}": HUB}
    topology = programs.star(links, {"rate": "1 Gbit/s", "delay": "0.1 ms"}, "to0")
    return programs.plan_of({"name": "transfers", "topology": topology, "paradigm": "allreduce",
                             "transport": {"congestion_control": asked["control"][0]}}, on)  # fmt: skip


def _ping(asked: Parameters) -> programs.Program:
    """Return a program: senders send, and receivers answer when all has arrived, so that transfers do not overlap."""

    def program(world: World, plan: Plan, node: NodePlan, inbox: Inbox) -> Callable[[], Awaitable[object]]:
        site = node.data_center
        sends, number = site.startswith("from"), site.removeprefix("from").removeprefix("to")
        wanted = ("to" if sends else "from") + number
        other = next(each.name for each in plan.training_workers if each.data_center == wanted)
        arrived: list[Any] = [world.future()]

        def on_message(message: Message) -> None:
            world.record("timed", t0=message.sent_at_s, size=message.key, repeat=message.round)
            before, arrived[0] = arrived[0], world.future()
            before.set_result(None)

        inbox.on(MessageKind.COLLECTIVE, on_message)

        async def transfer() -> None:
            for size, repeat in itertools.product(range(len(asked["sizes_mb"])), range(REPEATS)):
                if sends:
                    await world.sleep(GAP_S)
                    tensor = torch.zeros(int(float(asked["sizes_mb"][size]) * 1e6 / 4))
                    await world.send(other, Message(MessageKind.COLLECTIVE, size, repeat, parts=(tensor,)))
                await world.wait(arrived[0], f"size {size}, repeat {repeat}", DEADLINE_S)
                if not sends:
                    await world.send(other, Message(MessageKind.COLLECTIVE, size, repeat, parts=(torch.zeros(1),)))

        return transfer

    return program


def measure(request: Request, parameters: Parameters) -> pd.DataFrame:
    """Return one row per point and size: first and warm transfers in both worlds, and the errors of the simulation."""
    torch.set_num_threads(1)
    times: dict[tuple[str, int, int], list[float]] = {}
    for on in ("emulate", "simulate"):
        for node, events in programs.run(_hub(parameters, on), _ping(parameters)).items():
            for event in events:
                if event["kind"] == "timed" and node.startswith("to"):
                    number = int(node.partition("/")[0].removeprefix("to"))
                    times.setdefault((on, number, event["size"]), []).append(event["t"] - event["t0"])
    rows = []
    for (number, (rate, delay)), (size, mb) in itertools.product(
        enumerate(points(parameters)), enumerate(map(float, parameters["sizes_mb"]))
    ):
        (first, *warm), (first_simulated, *warm_simulated) = (times[on, number, size] for on in ("emulate", "simulate"))
        row = {"control": parameters["control"][0], "rate_mbps": rate, "delay_ms": delay, "size_mb": mb,
               "products": mb * 8 / (rate * 2 * delay / 1e3), "first_s": first, "first_simulated_s": first_simulated,
               "warm_s": median(warm), "warm_simulated_s": median(warm_simulated)}  # fmt: skip
        rows.append(row)
    frame = pd.DataFrame(rows)
    return frame.assign(first_error=frame["first_simulated_s"] / frame["first_s"] - 1,
                        warm_error=frame["warm_simulated_s"] / frame["warm_s"] - 1)  # fmt: skip


def claims(found: Results) -> Claims:
    errors = found.runs["warm_error"].abs()
    yield exactly("warm transfers: median error at most 2 %", float(errors.median()), 0, 0.02)
    yield exactly("warm transfers: largest error at most 10 %", float(errors.max()), 0, 0.10)


STUDY = Study(
    title="Transfers over TCP, emulated and simulated", source="testbed.simulation.tcp", measure=measure, claims=claims,
    parameters={"control": "cubic", "rates": "5,20", "delays": "2,20,100", "sizes_mb": "0.1,0.32,1", "queue": "0"},
    on=("emulate",), measures_on=("emulate",), sandboxed=True,
    looks={f"{rate}.0": series(place, f"{rate} Mbit/s") for place, rate in enumerate((5, 20))},
    panels=(Panel("", "100 * warm_error", "products", kind="points", series="rate_mbps", log="x",
                  x_label="size of a message (bandwidth-delay products)", y_label="error of a warm transfer (%)"),),
    size_in=(5.6, 3.4),
)  # fmt: skip
