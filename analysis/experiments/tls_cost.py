"""What TLS and the frame codes cost: bytes a second over one loopback connection, and a round of the quickstart.

    python -m analysis.experiments.tls_cost OUT [--messages 200] [--rounds 60]

Each of ``transport.tls`` on and off with each ``transport.mac``. One process sends messages of 4 MB to another as fast
as it can; the rate is that of their arrival, the processor time that of both ends. The round is the mean of a local run
of scenarios/quickstart.yaml without a modelled step time, so that nothing hides what crossing costs. Loopback has no
delay, so this is the most that a network can show of it. Writes tls_cost.csv.
"""

from __future__ import annotations

import argparse
import csv
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from analysis.experiments.command import run
from analysis.experiments.stragglers import write
from testbed.messages import Message, MessageKind
from testbed.plan.build import build_plan
from testbed.plan.model import NodePlan, Plan
from testbed.realtime.fleet import Fleet, Launch
from testbed.realtime.node import AnyRole
from testbed.realtime.world import RealWorld
from testbed.scenario.load import loads

SCENARIO = """
version: 1
name: tls-cost
seed: 1
run: {on: local}
paradigm: ps
topology: {data_centers: [{name: here, central: true, workers: 1}], links: []}
training: {model: mlp, data: digits, rounds: 1, evaluate_every: 1}
"""
MESSAGE_ELEMENTS = 1_000_000
QUICKSTART = Path("scenarios/quickstart.yaml")
SETTINGS = [(tls, mac) for mac in ("hmac-sha256", "crc32") for tls in (False, True)]


@dataclass(frozen=True, slots=True)
class Row:
    """``cpu_s_per_gb``: of both ends together."""

    tls: bool
    mac: str
    mb_per_s: float
    cpu_s_per_gb: float
    round_ms: float


def throughput(tls: bool, mac: str, messages: int, out: Path) -> tuple[float, float]:
    """MB/s, and seconds of a processor per GB."""
    plan = build_plan(loads(SCENARIO, overrides=(f"transport.tls={str(tls).lower()}", f"transport.mac={mac}")), "local")

    def make_role(node: NodePlan) -> AnyRole:
        return _sender(messages) if node.role == "worker" else _receiver(messages, node)

    Fleet(plan, Launch(make_role=lambda _plan, node: make_role(node), event_directory=out / "events")).run()
    (events,) = [_events(out, node.name) for node in plan.nodes if node.role == "global_server"]
    arrivals = [event["t"] for event in events if event["kind"] == "transfer"]
    moved = (len(arrivals) - 1) * 4 * MESSAGE_ELEMENTS
    spent_s = sum(e["cpu_s"] for node in _ends(plan) for e in _events(out, node) if e["kind"] == "final")
    return moved / (arrivals[-1] - arrivals[0]) / 1e6, spent_s / (messages * 4 * MESSAGE_ELEMENTS / 1e9)


def _ends(plan: Plan) -> list[str]:
    return [node.name for node in plan.nodes if node.role in ("worker", "global_server")]


def _sender(messages: int) -> AnyRole:
    async def role(world: RealWorld) -> None:
        world.record("start", role="worker", data_center="here")
        tensor = torch.randn(MESSAGE_ELEMENTS)
        for number in range(messages):
            await world.send("here/global0", Message(MessageKind.PUSH, 0, number, parts=(tensor,)))
        await world.receive("the last to be there")
        world.record("final", role="worker")

    return role


def _receiver(messages: int, node: NodePlan) -> AnyRole:
    async def role(world: RealWorld) -> None:
        if node.role == "scheduler":
            return
        world.record("start", role=node.role, data_center="here")
        for _ in range(messages):
            await world.receive("a message")
        await world.send("here/worker0", Message(MessageKind.DONE))
        world.record("final", role=node.role)

    return role


def _events(out: Path, node: str) -> list[dict[str, Any]]:
    path = out / "events" / f"{node.replace('/', '.')}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def round_ms(tls: bool, mac: str, rounds: int, out: Path) -> float:
    """Of the quickstart, local, as fast as it goes."""
    overrides = (
        f"transport.tls={str(tls).lower()}", f"transport.mac={mac}", f"training.rounds={rounds}",
        "training.target_accuracy=null", "training.evaluate_every=1000000", "device.step_time=1 ms",
    )  # fmt: skip
    ended = run(QUICKSTART, "local", out, overrides)
    times_s = ended.rounds_s()
    return 1e3 * sum(times_s) / len(times_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--messages", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=60)
    given = parser.parse_args()
    rows = []
    for number, (tls, mac) in enumerate(SETTINGS):
        rate, spent = throughput(tls, mac, given.messages, given.out / f"connection-{number}")
        mean_ms = round_ms(tls, mac, given.rounds, given.out / f"quickstart-{number}")
        rows.append(Row(tls, mac, rate, spent, mean_ms))
        write(f"tls {tls!s:5} {mac:11}: {rate:6.0f} MB/s, {spent:5.2f} s of a core per GB, round {mean_ms:.1f} ms")
    with (given.out / "tls_cost.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, list(asdict(rows[0])))
        table.writeheader()
        table.writerows(map(asdict, rows))


if __name__ == "__main__":
    main()
