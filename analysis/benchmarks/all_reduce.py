"""All-reduce among real nodes of this project, for the benchmark ``transport``: frames, codes and sums, no training.

To be run as a program, with the environment that the host process of a run has.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import torch

from analysis.benchmarks.transport_peers import Job, RepeatTimer
from testbed.engine.collectives.collectives import Collectives
from testbed.engine.collectives.operation import CollectiveMail
from testbed.engine.inbox import Inbox
from testbed.plan.build import build_plan
from testbed.plan.model import NodePlan, Plan
from testbed.realtime.fleet import Fleet, Launch
from testbed.realtime.node import AnyRole
from testbed.realtime.world import RealWorld
from testbed.scenario.load import loads


def plan_of(workers: int, code: str, shared_memory: bool) -> Plan:
    """Return the plan of a run without servers in one data centre."""
    scenario = {
        "version": 1, "name": "all-reduce", "seed": 1, "run": {"on": "local"},
        "topology": {"data_centers": [{"name": "a", "central": True, "workers": workers}]},
        "training": {"model": "mlp", "data": "digits", "batch": 8, "rounds": 1},
        "paradigm": {"kind": "allreduce", "algorithm": "ring"},
        "transport": {"mac": code, "shared_memory": shared_memory},
    }  # fmt: skip
    return build_plan(loads(json.dumps(scenario)))


def role_of(plan: Plan, node: NodePlan, job: Job) -> AnyRole:
    """Return what a node does: a worker sums ones with all others, again and again."""
    names = [worker.name for worker in plan.with_role("worker")]

    async def role(world: RealWorld) -> None:
        if node.role != "worker":
            return
        inbox = Inbox(world)
        group = Collectives(world, CollectiveMail(world, inbox), names)
        world.spawn(inbox.run(), "inbox")
        tensors, timer = [torch.ones(job.size_bytes // 4 // job.keys) for _ in range(job.keys)], RepeatTimer(job)
        for _ in timer.repeats():
            await group.all_reduce(torch.ones(1))
            begin_s = time.perf_counter()
            calls = [world.spawn(group.all_reduce(tensor), "a sum") for tensor in tensors]
            sums = [await world.wait(call, "a sum") for call in calls]
            timer.add(time.perf_counter() - begin_s)
        assert all(total[0] == total[-1] == job.workers for total in sums)
        if group.rank == 0:
            timer.write()
        await group.all_reduce(torch.ones(1))

    return role


def main(job: Job, code: str, shared_memory: bool) -> None:
    torch.set_num_threads(1)
    plan = plan_of(job.workers, code, shared_memory)
    with tempfile.TemporaryDirectory() as events:
        launch = Launch(make_role=lambda plan, node: role_of(plan, node, job), event_directory=Path(events))
        Fleet(plan, launch).run()


if __name__ == "__main__":
    _workers, _size_bytes, _keys, _repeats = map(int, sys.argv[1:5])
    main(Job(_workers, _size_bytes, _keys, _repeats, Path(sys.argv[5])), sys.argv[6], sys.argv[7] == "shared")
