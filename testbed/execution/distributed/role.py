"""A worker of a run in which a library (``torch.distributed``) sums the gradients of all workers."""

from __future__ import annotations

import asyncio

import torch
from torch import Tensor

from testbed.engine import coding, sync_setup
from testbed.engine.aggregation_weights import contribution_weight
from testbed.engine.checkpoint import CheckpointFiles
from testbed.engine.collectives.collectives import Collectives
from testbed.engine.collectives.exchange import (
    Names,
    Reduction,
    Reductions,
    buckets_by_fragment,
    data_parallel_exchange,
)
from testbed.engine.collectives.operation import CollectiveMail
from testbed.engine.collectives.step import WholeStep
from testbed.engine.guard import guarded
from testbed.engine.learner import make_learner
from testbed.engine.serverless import serverless_worker
from testbed.engine.slicing import gradients_of_a_step
from testbed.execution.distributed.torch_group import Group, make_group
from testbed.plan.model import NodePlan, Plan
from testbed.policy.collective.options import BUCKETS, GlooOptions
from testbed.realtime.node import AnyRole
from testbed.realtime.world import RealWorld
from testbed.state import Remembering


def distributed_worker(plan: Plan, node: NodePlan, files: CheckpointFiles | None = None) -> AnyRole:
    """Return the role of ``node``, a worker of a run with paradigm ``gloo``."""
    learner = guarded(plan, node, make_learner(plan, node))
    options = GlooOptions(**plan.technique.paradigm.options)
    buckets = buckets_by_fragment(plan, learner.sizes, options.bucket)

    async def make_reductions(
        world: RealWorld, mail: CollectiveMail, values: list[Tensor], training: Names
    ) -> Reductions:
        peers = Collectives(world, mail, training, name="peers")
        peers.round = -1
        group = await make_group(world, plan, peers, options.backend)
        starting = asyncio.Lock()
        sums = [LibrarySum(world, group, options.backend, number, starting) for number in range(len(buckets))]
        reports = Collectives(world, mail, training, name="reports") if sync_setup.needs_reports(plan) else None
        step = WholeStep(sync_setup.stepped_with(plan), values, gradients_of_a_step(plan), learner.shapes)
        return Reductions(Reduction(sums, step, contribution_weight(plan, node)), reports=reports)

    overlaps = options.overlap == BUCKETS
    make_exchange = data_parallel_exchange(plan, learner, buckets, make_reductions, overlaps=overlaps)
    return serverless_worker(plan, node, learner, make_exchange, files)


class LibrarySum(Remembering):
    """Sums one bucket with the library. The library's messages are recorded as one transfer per peer and round.

    starting  a lock, held while a sum is prepared and begun, so that all workers begin their buckets in the same order
    """

    def __init__(self, world: RealWorld, group: Group, library: str, bucket: int, starting: asyncio.Lock) -> None:
        self._world = world
        self._group = group
        self._library = library
        self._bucket = bucket
        self._starting = starting

    async def __call__(self, gradient: Tensor, round_: int, flag: bool) -> tuple[Tensor, bool]:
        """Return the sum of all gradients, and whether any worker raised its flag, which is summed as an element."""
        async with self._starting:
            mine = gradient if self._group.on_gpu else await coding.exact(self._world, gradient)
            total = torch.cat([mine, torch.tensor([float(flag)], device=mine.device)])
            began_s = self._world.now()
            done = self._group.start(total)
        await self._world.wait(done, f"{self._library}'s sum of bucket {self._bucket} in round {round_}")
        for peer, size_bytes in sorted(self._group.received_bytes().items()):
            self._world.record_library_transfer(
                peer, size_bytes, began_s, message=self._library, key=self._bucket, round=round_
            )
        (placed,) = await coding.to_device(self._world, (total,), gradient.device)
        return placed[:-1], bool(total[-1] > 0)
