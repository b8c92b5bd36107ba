"""What TLS and the frame codes cost: bytes a second over one loopback connection, and a round of the quickstart.

Each of ``transport.tls`` on and off with each ``transport.mac``. One process sends messages of 4 MB to another as fast
as it can; the rate is that of their arrival, the processor time that of both ends. The round is the mean of a local run
of scenarios/quickstart.yaml without a modelled step time, so that nothing hides what crossing costs. Loopback has no
delay, so this is the most that a network can show of it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import pandas as pd
import torch

from analysis.studies import engine, programs
from analysis.studies.columns import periods, setting
from analysis.studies.study import Panel, Request, Study, StudySweep
from testbed.engine.inbox import Inbox
from testbed.messages import Message, MessageKind
from testbed.plan.model import NodePlan, Plan
from testbed.realtime.world import RealWorld

MESSAGE_ELEMENTS = 1_000_000
TLS, MAC = "transport.tls", "transport.mac"
FAST = {"training.target_accuracy": "null", "training.evaluate_every": "1000000", "device.step_time": "1 ms"}
TOPOLOGY = {"data_centers": [{"name": name, "workers": 1, "central": name == "here"} for name in ("here", "there")],
            "links": [{"between": ["here", "there"], "rate": "1 Gbit/s", "delay": "0 ms"}]}  # fmt: skip


def _stream(messages: int) -> programs.Program:
    """Return a program: the second worker sends, the first records arrivals, both record their processor time."""

    def program(world: RealWorld, plan: Plan, node: NodePlan, inbox: Inbox) -> Callable[[], Awaitable[object]]:
        first, second = (worker.name for worker in plan.training_workers)
        done, count = world.future(), [0]

        def on_message(message: Message) -> None:
            count[0] += 1
            world.record("arrived")
            if count[0] == (messages if node.name == first else 1):
                done.set_result(None)

        inbox.on(MessageKind.COLLECTIVE, on_message)

        async def stream() -> None:
            begin_s, tensor = time.process_time(), torch.randn(MESSAGE_ELEMENTS)
            for number in range(messages if node.name == second else 0):
                await world.send(first, Message(MessageKind.COLLECTIVE, 0, number, parts=(tensor,)))
            await world.wait(done, "the other end", 600)
            if node.name == first:
                await world.send(second, Message(MessageKind.COLLECTIVE, 0, 0, parts=(torch.zeros(1),)))
            world.record("spent", cpu_s=time.process_time() - begin_s)

        return stream

    return program


def _throughput(tls: str, mac: str, messages: int) -> dict[str, float]:
    """MB/s, and seconds of a processor per GB."""
    plan = programs.plan_of({"name": "tls-cost", "paradigm": "allreduce", "topology": TOPOLOGY,
                             "transport": {"tls": tls == "true", "mac": mac}}, "local")  # fmt: skip
    events = programs.run(plan, _stream(messages))
    arrivals = sorted(e["t"] for e in events[plan.training_workers[0].name] if e["kind"] == "arrived")
    spent_s = sum(e["cpu_s"] for node in events.values() for e in node if e["kind"] == "spent")
    size = 4 * MESSAGE_ELEMENTS
    return {"mb_per_s": (messages - 1) * size / (arrivals[-1] - arrivals[0]) / 1e6,
            "cpu_s_per_gb": spent_s / (messages * size / 1e9)}  # fmt: skip


def measure(request: Request, parameters: Mapping[str, tuple[str, ...]]) -> pd.DataFrame:
    """Return one row per combination of ``tls`` and ``mac``."""
    torch.set_num_threads(1)
    messages, rounds = int(parameters["messages"][0]), parameters["rounds"][0]
    codes = parameters["mac"]
    sweep = StudySweep(
        "rounds", {"quickstart": {**FAST, "training.rounds": rounds}}, {MAC: codes, TLS: ("false", "true")}
    )
    columns: dict[str, Any] = {"mac": setting(MAC, str), "tls": setting(TLS, str),
                               "round_ms": lambda each: 1e3 * periods(each).mean()}  # fmt: skip
    quickstart = Study("", "", scenario="quickstart.yaml", sweeps=lambda quick: (sweep,), columns=columns)
    asked = replace(request, on=("local",), settings={})
    frame, _, _ = engine.frames(quickstart, engine.run_all(quickstart, asked))
    rows = frame[["back_end", "mac", "tls", "round_ms"]].to_dict("records")
    return pd.DataFrame([{**row, **_throughput(row["tls"], row["mac"], messages)} for row in rows])


STUDY = Study(
    title="What TLS and frame codes cost on loopback", source="own", measure=measure, on=("local",),
    measures_on=("local",), parameters={"messages": "200", "rounds": "60", "mac": "aes-gmac,hmac-sha256,crc32c"},
    panels=tuple(
        Panel(title, y, "mac", kind="bar", series="tls", y_label=unit, labels={"true": "TLS", "false": "no TLS"})
        for title, y, unit in (("One connection", "mb_per_s", "MB/s"),
                               ("Processor time, both ends", "cpu_s_per_gb", "s per GB"),
                               ("A round of the quickstart", "round_ms", "ms"))
    ),
    size_in=(9.4, 3.2),
)  # fmt: skip
