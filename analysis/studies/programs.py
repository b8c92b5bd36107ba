"""A study's own program, run by the workers of a plan in the real or the virtual world; it returns what they record.

Scheduler and servers keep their roles. When it is called, the program only registers handlers of messages; it returns
what a worker does once all nodes have joined.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from testbed.engine.inbox import Inbox
from testbed.engine.membership import Membership
from testbed.engine.roles import make_role
from testbed.plan.build import build_plan
from testbed.plan.model import NodePlan, Plan
from testbed.realtime.fleet import Fleet, Launch
from testbed.results.events import read
from testbed.scenario.load import loads
from testbed.simulation.run import SimulationOptions, simulate

Program = Callable[[Any, Plan, NodePlan, Inbox], Callable[[], Awaitable[object]]]
Events = dict[str, list[dict[str, Any]]]


def star(links: Mapping[str, Mapping[str, str]], lan: Mapping[str, str], central: str) -> dict[str, Any]:
    """Return a topology of one router, with a data centre of one worker at the end of each of its ``links``."""
    return {
        "data_centers": [{"name": name, "workers": 1, "central": name == central} for name in links],
        "routers": ["hub"],
        "links": [{"between": [name, "hub"], **link} for name, link in links.items()],
        "lan": lan,
    }


def plan_of(scenario: dict[str, Any], on: str) -> Plan:
    """Return the plan of a scenario given as data; what it trains does not matter."""
    training = {"model": "mlp", "data": "digits", "rounds": 1, "evaluate_every": 1}
    text = json.dumps({"version": 1, "seed": 1, "run": {"on": on}, "training": training, **scenario})
    return build_plan(loads(text), on)


def run(plan: Plan, program: Program, options: SimulationOptions | None = None) -> Events:
    """Run ``program`` on the back end of the plan; return each node's events. Raises what a node raised.

    On ``emulate`` this must be called inside a sandbox (``emulation.sandbox``).
    """

    def role_of(plan: Plan, node: NodePlan) -> Any:
        return _member(plan, node, program) if node.role == "worker" else make_role(plan, node)

    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        events = Path(folder) / "events"
        if plan.back_end == "simulate":
            for end in simulate(plan, role_of, Path(folder), lambda line: None, options).values():
                if end.error is not None:
                    raise end.error
        else:
            enter = None
            if plan.back_end == "emulate":
                from emulation.network import Emulation
                from emulation.probe import probe

                network = stack.enter_context(Emulation(plan, probe(), lambda kind, **fields: None))
                enter = lambda node: network.enter(node.name)  # noqa: E731
            launch = Launch(make_role=role_of, event_directory=events, enter=enter, epoch_ns=time.monotonic_ns())
            Fleet(plan, launch).run()
        found: Events = defaultdict(list)
        for event in read(events):
            found[event["node"]].append(event)
        return found


def _member(plan: Plan, node: NodePlan, program: Program) -> Any:
    async def role(world: Any) -> None:
        inbox = Inbox(world)
        membership = Membership(world, inbox, plan)
        body = program(world, plan, node, inbox)
        reading = world.spawn(inbox.run(), "inbox")
        await membership.join()
        await body()
        await membership.finish()
        await reading

    return role
