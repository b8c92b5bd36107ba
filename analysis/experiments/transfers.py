"""How long transfers over emulated TCP take, and how long the virtual world says: its TCP model alone, nothing else.

    python -m analysis.experiments.transfers OUT --control cubic
    python -m analysis.experiments.transfers OUT --control bbr --rates 5,20 --delays 2,20,100

Every point is a pair of nodes with a link of its own (``--rates`` in Mbit/s, ``--delays`` in ms, one way), all at once:
one sends messages of ``--sizes`` MB to the other over one connection. Each size is sent ``REPEATS`` times, with
``GAP_S`` of silence before each, as rounds of training do; the first transfer finds a connection that has carried a few
bytes, the others one that has carried as much. A transfer is over when the other end has it whole: one clock.

The same program runs in the virtual world. Writes ``transfers-CONTROL.csv``: per point and size the median over warm
transfers of both worlds, the first one's, and what the validity rule says (``testbed.simulation.tcp``).
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from testbed.engine.inbox import Inbox
from testbed.engine.membership import Membership
from testbed.engine.roles import make_role
from testbed.messages import Message, MessageKind
from testbed.plan.build import build_plan
from testbed.plan.model import NodePlan, Plan
from testbed.realtime.fleet import Fleet, Launch
from testbed.scenario.load import loads
from testbed.simulation.run import simulate
from testbed.world import Role, World

REPEATS = 7
GAP_S = 0.3
DEADLINE_S = 600
HUB_MBPS = 500
LAN_MS = 0.1


@dataclass(frozen=True, slots=True)
class Row:
    """One size on one link; ``first_*``: of the first transfer, the others are medians of the warm ones."""

    control: str
    rate_mbps: float
    delay_ms: float
    size_mb: float
    products: float
    first_s: float
    first_simulated_s: float
    warm_s: float
    warm_simulated_s: float

    @property
    def first_error(self) -> float:
        return self.first_simulated_s / self.first_s - 1

    @property
    def warm_error(self) -> float:
        return self.warm_simulated_s / self.warm_s - 1


@dataclass(frozen=True, slots=True)
class Settings:
    """What is measured; ``points`` are (Mbit/s, ms), each a pair of nodes. ``queue_ms``: 0 for the default."""

    points: tuple[tuple[float, float], ...]
    sizes_mb: tuple[float, ...]
    control: str
    queue_ms: float


def plan_of(settings: Settings, on: str) -> Plan:
    """A hub; each point is a data centre that sends over the link in question, and one beside the hub that receives."""
    names: list[str] = []
    links: list[dict[str, Any]] = []
    for number, (rate, delay) in enumerate(settings.points):
        names += [f"from{number}", f"to{number}"]
        asked = {"rate": f"{rate:g} Mbit/s", "delay": f"{delay:g} ms"}
        if settings.queue_ms:
            asked["queue"] = f"{settings.queue_ms:g} ms"
        links.append({"between": [f"from{number}", "hub"], **asked})
        links.append({"between": [f"to{number}", "hub"], "rate": f"{HUB_MBPS} Mbit/s", "delay": f"{LAN_MS} ms"})
    sites = [{"name": name, "workers": 1, **({"central": True} if name == "to0" else {})} for name in names]
    scenario = {
        "version": 1, "name": "transfers", "seed": 1, "run": {"on": on},
        "topology": {"data_centers": sites, "routers": ["hub"], "links": links,
                     "lan": {"rate": "1 Gbit/s", "delay": f"{LAN_MS} ms"}},
        "training": {"model": "mlp", "data": "digits", "rounds": 1, "evaluate_every": 1},
        "transport": {"congestion_control": settings.control}, "paradigm": "allreduce",
    }  # fmt: skip
    return build_plan(loads(json.dumps(scenario)), on)


def role_of(plan: Plan, node: NodePlan, settings: Settings) -> Role:
    """A sender sends, its receiver answers with a word when all is there, so that transfers do not overlap."""
    if node.role != "worker":
        return make_role(plan, node)
    site = node.data_center
    sends, number = site.startswith("from"), site.removeprefix("from").removeprefix("to")
    other = next(
        each.name for each in plan.training_workers if each.data_center == ("to" if sends else "from") + number
    )

    async def run(world: World) -> None:
        inbox = Inbox(world)
        membership = Membership(world, inbox, plan)
        arrived: list[Any] = [world.future()]

        def on_message(message: Message) -> None:
            world.record("timed", t0=message.sent_at_s, size=message.key, repeat=message.round)
            before, arrived[0] = arrived[0], world.future()
            before.set_result(None)

        inbox.on(MessageKind.COLLECTIVE, on_message)
        reading = world.spawn(inbox.run(), "inbox")
        await membership.join()
        for size in range(len(settings.sizes_mb)):
            for repeat in range(REPEATS):
                if sends:
                    await world.sleep(GAP_S)
                    tensor = torch.zeros(int(settings.sizes_mb[size] * 1e6 / 4))
                    await world.send(other, Message(MessageKind.COLLECTIVE, size, repeat, parts=(tensor,)))
                await world.wait(arrived[0], f"size {size}, repeat {repeat}", DEADLINE_S)
                if not sends:
                    await world.send(other, Message(MessageKind.COLLECTIVE, size, repeat, parts=(torch.zeros(1),)))
        await membership.finish()
        await reading

    return run


Times = dict[tuple[int, int, int], float]


def times_in(paths: Iterable[Path]) -> Times:
    """(point, size, repeat) to seconds, from the receivers' logs."""
    found: Times = {}
    for path in paths:
        if path.stem.startswith("to"):
            number = int(path.stem.split(".")[0].removeprefix("to"))
            for event in map(json.loads, path.read_text().splitlines()):
                if event["kind"] == "timed":
                    found[number, event["size"], event["repeat"]] = event["t"] - event["t0"]
    return found


def emulated(settings: Settings) -> Times:
    """Must be called inside a sandbox."""
    from emulation.network import Emulation
    from emulation.probe import probe

    plan = plan_of(settings, "emulate")
    with (
        tempfile.TemporaryDirectory() as folder,
        Emulation(plan, probe(), lambda kind, **fields: None) as network,
    ):
        launch = Launch(
            make_role=lambda plan, node: role_of(plan, node, settings), event_directory=Path(folder),
            enter=lambda node: network.enter(node.name), epoch_ns=time.monotonic_ns(),
        )  # fmt: skip
        Fleet(plan, launch).run()
        return times_in(Path(folder).glob("*.jsonl"))


def simulated(settings: Settings) -> Times:
    """The same program in virtual time."""
    plan = plan_of(settings, "simulate")
    with tempfile.TemporaryDirectory() as folder:
        exits = simulate(plan, lambda plan, node: role_of(plan, node, settings), Path(folder), lambda event: None)
        for end in exits.values():
            if end.error is not None:
                raise end.error
        return times_in((Path(folder) / "events").glob("*.jsonl"))


def compare(settings: Settings, real: Times, virtual: Times) -> list[Row]:
    """One row per point and size."""
    rows = []
    for number, (rate, delay) in enumerate(settings.points):
        for size, megabytes in enumerate(settings.sizes_mb):
            first, *warm = (real[number, size, repeat] for repeat in range(REPEATS))
            first_v, *warm_v = (virtual[number, size, repeat] for repeat in range(REPEATS))
            products = megabytes * 8 / (rate * 2 * delay / 1e3)
            middle = statistics.median
            rows.append(Row(settings.control, rate, delay, megabytes, products,
                            first, first_v, middle(warm), middle(warm_v)))  # fmt: skip
    return rows


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(number) for number in text.split(","))


def _print(rows: Sequence[Row]) -> None:
    for row in rows:
        sys.stdout.write(
            f"{row.control:6} {row.rate_mbps:6g} Mbit/s {row.delay_ms:5g} ms {row.size_mb:5g} MB"
            f" {row.products:6.1f} BDP"
            f"  first {row.first_s:7.3f} {row.first_error:+6.1%}  warm {row.warm_s:7.3f} {row.warm_error:+6.1%}\n"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--control", default="cubic")
    parser.add_argument("--rates", type=_numbers, default=(5.0, 20.0))
    parser.add_argument("--delays", type=_numbers, default=(2.0, 20.0, 100.0))
    parser.add_argument("--sizes", type=_numbers, default=(0.1, 0.32, 1.0))
    parser.add_argument("--queue", type=float, default=0, metavar="MS", help="of each link, as time to drain")
    options = parser.parse_args()
    from emulation.sandbox import is_inside, sandbox_command

    if not is_inside():
        command = sandbox_command([sys.executable, "-m", "analysis.experiments.transfers", *sys.argv[1:]])
        return subprocess.run(command, timeout=DEADLINE_S, check=False, env=dict(os.environ)).returncode
    torch.set_num_threads(1)
    points = tuple((rate, delay) for rate in options.rates for delay in options.delays)
    settings = Settings(points, options.sizes, options.control, options.queue)
    rows = compare(settings, emulated(settings), simulated(settings))
    _print(rows)
    options.out.mkdir(parents=True, exist_ok=True)
    with open(options.out / f"transfers-{options.control}.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*asdict(rows[0]), "first_error", "warm_error"])
        writer.writeheader()
        writer.writerows(asdict(row) | {"first_error": row.first_error, "warm_error": row.warm_error} for row in rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
