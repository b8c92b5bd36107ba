"""The exchange of an all-reduce worker, from the Plan. Such a run has workers and a scheduler, and no servers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor

from testbed.codec.base import Codec, SummedCodec
from testbed.codec.on_device import OnDevice
from testbed.codec.options import CODECS
from testbed.codec.table import make_codec
from testbed.devices.accelerator import CPU, accelerator_of
from testbed.engine import sync_setup
from testbed.engine.aggregation_weights import contribution_weight, weight_inside
from testbed.engine.collectives.collectives import Collectives
from testbed.engine.collectives.exchange import (
    Names,
    Reduction,
    Reductions,
    buckets_by_fragment,
    data_parallel_exchange,
)
from testbed.engine.collectives.inside import MakeLibrary
from testbed.engine.collectives.operation import CollectiveMail
from testbed.engine.collectives.step import OptimizerStep, SharedStep, WholeStep
from testbed.engine.collectives.sums import (
    BucketSum,
    DenseSum,
    GatheredSum,
    OwnChoice,
    OwnSiteSums,
    SiteSums,
    StepwiseSum,
    TopKSum,
)
from testbed.engine.collectives.topology import Ranks, ranks_of, segments_of
from testbed.engine.serverless import PlaceInRun, ServerlessExchange
from testbed.engine.slicing import gradients_of_a_step, shapes_to_declare
from testbed.key_shape import KeyShape
from testbed.placing import place_of
from testbed.plan.model import NodePlan, Plan
from testbed.policy.collective import ALL_REDUCE, SPARSE
from testbed.policy.collective.options import BUCKETS, AllReduceOptions
from testbed.policy.collective.ring import ring
from testbed.policy.collective.schedule import GroupShape
from testbed.policy.collective.shares import shares_of
from testbed.policy.events import Contribution
from testbed.training.learner import SegmentedLearner
from testbed.world import World


def allreduce_exchange(
    plan: Plan, node: NodePlan, learner: SegmentedLearner, make_library: MakeLibrary | None = None
) -> Callable[[PlaceInRun], ServerlessExchange]:
    """Return a function that makes the exchange of ``node``, a worker that trains ``learner``.

    ``make_library``: makes a library's sums among the workers of a data centre, if a library sums there.
    """
    options = AllReduceOptions(**plan.technique.paradigm.options)
    shapes = shapes_to_declare(plan, learner.shapes)
    buckets = buckets_by_fragment(plan, learner.sizes, 0 if shapes else options.bucket)
    ranks = ranks_of(plan)
    if options.algorithm in SPARSE and SPARSE[options.algorithm].hierarchical:
        ranks.peers_of(ranks.names[0])  # raises an error for an impossible Plan before anything starts

    async def make_reductions(world: World, mail: CollectiveMail, values: list[Tensor], present: Names) -> Reductions:
        left = ranks_of(plan, present)
        sizes = [sum(learner.sizes[key] for key in bucket) for bucket in buckets]
        neighbours = Collectives(world, mail, left.site_of(world.node), name="library")
        library = None
        if make_library is not None and neighbours.size > 1:
            neighbours.round = -1  # before training
            library = await make_library(world, plan, neighbours)

        def sums(ranks: Ranks, tier: int) -> list[BucketSum]:
            make = _SumMaker(plan, world, mail, ranks, tier, library)
            return [make.sum_of(number, size, shapes.get(buckets[number][0])) for number, size in enumerate(sizes)]

        across = Reduction(sums(left, 2), make_step(world, mail, values), contribution_weight(plan, node))
        inside = None
        if sync_setup.lan_rounds(plan) > 1:
            step = WholeStep(sync_setup.stepped_with(plan), values, gradients_of_a_step(plan), learner.shapes)
            inside = Reduction(sums(ranks.inside(world.node), 1), step, weight_inside(plan, node))
        reports = Collectives(world, mail, ranks.names, name="reports") if sync_setup.needs_reports(plan) else None
        return Reductions(across, inside, reports)

    def make_step(world: World, mail: CollectiveMail, values: list[Tensor]) -> OptimizerStep:
        choice = sync_setup.stepped_with(plan)
        workers = gradients_of_a_step(plan)
        if options.optimizer_work == "replicated":
            return WholeStep(choice, values, workers, learner.shapes)
        names = ranks.names if options.shared_by == "all" else ranks.site_of(world.node)
        group = Collectives(world, mail, names, name="optimizer")
        updates = options.optimizer_work == "update"
        shares = shares_of([value.numel() for value in values], len(names))
        return SharedStep(choice, values, group, shares, updates=updates, workers=workers)

    return data_parallel_exchange(plan, learner, buckets, make_reductions, overlaps=options.overlap == BUCKETS)


class _SumMaker:
    """Makes the sum of each bucket. Each bucket has its own group of ranks, so that no bucket waits for another.

    tier     1 inside a data centre, otherwise 2
    library  makes the dense sums inside data centres for a sparse sum; ``None``: this project's operations do
    """

    def __init__(
        self, plan: Plan, world: World, mail: CollectiveMail, ranks: Ranks, tier: int, library: SiteSums | None
    ) -> None:
        self._plan = plan
        self._world = world
        self._mail = mail
        self._ranks = ranks
        self._options = AllReduceOptions(**plan.technique.paradigm.options)
        self._library = library
        self._choice = plan.technique.codec_tier1 if tier == 1 else plan.technique.codec_tier2
        self._tier = tier
        self._prefix = "inside " if tier == 1 else ""

    def sum_of(self, bucket: int, elements: int, key: KeyShape | None = None) -> BucketSum:
        """Return the sum of a bucket. ``key``: shape of the bucket's only key, if the codec depends on shapes."""
        options = self._options
        world = self._world
        ranks = self._ranks
        name = f"bucket {bucket}"
        declared = CODECS[self._choice.kind]
        algorithm = ALL_REDUCE.get(options.algorithm, ring)
        if declared.summed:
            summed = self._declared(world.node, bucket, key)
            assert isinstance(summed, SummedCodec), f"{self._choice.kind} says that it is one"
            shape = ranks.shape(options.segments or segments_of(self._plan, ranks, elements))
            return StepwiseSum(world, self._group(ranks.names, name, shape=shape), algorithm, summed, bucket)
        if not declared.exact and (not declared.dense or declared.has_memory):
            make = partial(self._codec_on_device, bucket=bucket, shape=key)
            return GatheredSum(world, self._group(ranks.names, name), make, bucket)
        hierarchical = options.algorithm in SPARSE and SPARSE[options.algorithm].hierarchical
        if options.algorithm in ALL_REDUCE or (hierarchical and self._tier == 1):  # hitopk is dense in data centres
            shape = ranks.shape(options.segments or segments_of(self._plan, ranks, elements))
            codec = None if declared.exact else self._codec(world.node)  # exact: values travel as they are
            return DenseSum(world, self._group(ranks.names, name, codec, shape), algorithm)
        own = OwnChoice(world, options.density, self._plan.seed, options.selector, bucket)
        if not hierarchical:
            alone = OwnSiteSums(world, self._group((world.node,), f"{name} alone"))
            return TopKSum(world, alone, self._group(ranks.names, name), own, bucket, direct=True)
        inside = self._group(ranks.site_of(world.node), f"{name} inside")
        across = self._group(ranks.peers_of(world.node), f"{name} across")
        return TopKSum(world, self._library or OwnSiteSums(world, inside), across, own, bucket)

    def _group(
        self, names: tuple[str, ...], name: str, codec: Codec | None = None, shape: GroupShape | None = None
    ) -> Collectives:
        return Collectives(self._world, self._mail, names, codec, shape=shape, name=f"{self._prefix}{name}")

    def _codec(self, sender: str) -> Codec:
        """Return a new codec for the payloads of ``sender`` in one bucket."""
        choice = self._choice
        workers = len(self._ranks.names)
        changes = sync_setup.contribution_of(self._plan) is not Contribution.GRADIENT
        return make_codec(choice.kind, choice.options, self._tier, workers, self._plan.seed, changes, sender)

    def _declared(self, sender: str, bucket: int, shape: KeyShape | None) -> Codec:
        """Return a new codec like ``_codec``, and declare the shape of the bucket's only key to it, if given."""
        codec = self._codec(sender)
        if shape is not None:
            codec.declare(bucket, shape)
        return codec

    def _codec_on_device(self, sender: str, bucket: int, shape: KeyShape | None) -> Codec:
        """Return a new codec like ``_declared`` that works on the device of this worker's gradients."""
        codec = self._declared(sender, bucket, shape)
        node = self._plan.node(self._world.node)
        on_host = node.device.kind == CPU.type
        return codec if on_host else OnDevice(codec, accelerator_of(place_of(self._plan, node)))
