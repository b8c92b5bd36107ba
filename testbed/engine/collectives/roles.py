"""Puts an all-reduce worker together from the Plan. Beside the workers a run has only its scheduler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from torch import Tensor

from testbed.codec.base import Codec
from testbed.codec.table import make_codec
from testbed.engine.collectives.choice import CoordinatedChoice, OwnChoice
from testbed.engine.collectives.collectives import Collectives
from testbed.engine.collectives.mail import CollectiveMail
from testbed.engine.collectives.sums import BucketSum, DenseSum, FlatTopK, HiTopK
from testbed.engine.collectives.topology import Ranks, ranks_of
from testbed.engine.collectives.worker import AllReduceWorker, Buckets, first_values
from testbed.engine.inbox import Inbox
from testbed.engine.learner import make_learner
from testbed.engine.loading.trainer import begin_loading, finish_loading
from testbed.engine.membership import Membership
from testbed.errors import ScenarioError
from testbed.plan.model import NodePlan, Plan
from testbed.policy.collective import ALL_REDUCE, CODECS, AllReduceOptions
from testbed.policy.collective.buckets import buckets_of
from testbed.training.learner import SegmentedLearner, values_sha256
from testbed.world import Role, World


def allreduce_worker(plan: Plan, node: NodePlan) -> Role:
    """The role of ``node``, a worker of a run with paradigm ``allreduce``."""
    learner = make_learner(plan, node)
    options = AllReduceOptions(**plan.technique.paradigm.options)
    buckets = buckets_of(learner.sizes, options.bucket)
    ranks = ranks_of(plan, options.rank_order, options.bucket)
    if options.algorithm == "hitopk":
        ranks.alike(ranks.names[0])  # refuse before anything starts
    if options.coordinated and plan.training.compute == "modelled":
        raise ScenarioError("paradigm: 'coordinated' looks at numbers, and with 'compute: modelled' there are none")

    async def make_sums(world: World, mail: CollectiveMail) -> list[BucketSum]:
        make = _SumMaker(plan, options, world, mail, ranks)
        return [make.sum_of(number) for number in range(len(buckets))]

    return data_parallel(plan, node, learner, buckets, make_sums)


AnyWorld = TypeVar("AnyWorld", bound=World)


def data_parallel(
    plan: Plan, node: NodePlan, learner: SegmentedLearner, buckets: Buckets,
    make_sums: Callable[[AnyWorld, CollectiveMail], Awaitable[Sequence[BucketSum]]],
) -> Callable[[AnyWorld], Awaitable[list[Tensor]]]:  # fmt: skip
    """The role of a worker whose gradients are summed, bucket by bucket, by what ``make_sums`` makes."""

    async def run(world: AnyWorld) -> list[Tensor]:
        world.record("start", role=node.role, data_center=node.data_center)
        inbox = Inbox(world)
        membership, mail = Membership(world, inbox, plan), CollectiveMail(world, inbox)
        begin_loading(learner, world, inbox)
        reading = world.spawn(inbox.run(), "inbox")
        await membership.join()
        everybody = Collectives(world, mail, [worker.name for worker in plan.with_role("worker")], name="start")
        everybody.round = -1  # no training yet
        values = await first_values(world, everybody, learner, buckets)
        rounds = 0
        if node.trains:
            sums = await make_sums(world, mail)
            rounds = await AllReduceWorker(plan, node, learner, values, buckets, sums).run(world, membership)
        await finish_loading(learner)
        await membership.finish()
        await reading
        world.record("final", role=node.role, iterations=rounds, parameters_sha256=values_sha256(learner.values()))
        return learner.values()

    return run


class _SumMaker:
    """Makes the sum of each bucket. Buckets have groups of their own, so that none waits for another's turn."""

    def __init__(self, plan: Plan, options: AllReduceOptions, world: World, mail: CollectiveMail, ranks: Ranks) -> None:
        self._plan, self._options, self._world, self._mail, self._ranks = plan, options, world, mail, ranks

    def sum_of(self, bucket: int) -> BucketSum:
        options, world = self._options, self._world
        if options.algorithm in ALL_REDUCE:
            shape = self._ranks.shape(options.segments)
            group = Collectives(
                world, self._mail, self._ranks.names, self._codec(), shape=shape, name=f"bucket {bucket}"
            )
            return DenseSum(group, ALL_REDUCE[options.algorithm])
        own = OwnChoice(world, options.density, self._plan.seed)
        if options.algorithm == "flat_topk":
            return FlatTopK(world, self._group(self._ranks.names, f"bucket {bucket}"), own)
        inside = self._group(self._ranks.site_of(world.node), f"bucket {bucket} inside")
        across = self._group(self._ranks.alike(world.node), f"bucket {bucket} across")
        choose = CoordinatedChoice(world, inside, options.density) if options.coordinated else own
        return HiTopK(world, inside, across, choose)

    def _group(self, names: tuple[str, ...], name: str) -> Collectives:
        return Collectives(self._world, self._mail, names, name=name)

    def _codec(self) -> Codec | None:
        choice = self._plan.technique.codec_tier2
        if choice.kind not in CODECS:
            raise ScenarioError(f"codec: '{choice.kind}' cannot be added up on the way; all-reduce takes {CODECS}")
        return None if choice.kind == "none" else make_codec(choice.kind, choice.options)
