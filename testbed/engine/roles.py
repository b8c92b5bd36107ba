"""From a Plan's node to the role that it plays. The only place that knows how the parts are put together."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from testbed.codec.base import Codec
from testbed.codec.table import make_codec
from testbed.engine.inbox import Inbox
from testbed.engine.kvstore import KVStore
from testbed.engine.learner import make_learner
from testbed.engine.membership import Membership
from testbed.engine.scheduler import Scheduler
from testbed.engine.server import Server
from testbed.engine.upstream import Optimizing, ParentServers, Upstream
from testbed.engine.worker import Worker
from testbed.plan.model import Choice, NodePlan, Plan
from testbed.policy.events import SyncPolicy
from testbed.policy.order import ORDERS
from testbed.policy.shard import SHARDS
from testbed.policy.sync import SYNC
from testbed.training.trainer import values_sha256
from testbed.world import Role, World


def make_role(plan: Plan, node: NodePlan) -> Role:
    """The coroutine function that plays ``node``; what it needs before the clock starts (data, model) is made here."""
    if node.role == "scheduler":
        return Scheduler(plan)
    if node.role == "worker":
        return _worker(plan, node)
    return _server(plan, node)


def _worker(plan: Plan, node: NodePlan) -> Role:
    learner = make_learner(plan, node)

    async def run(world: World) -> list[Tensor]:
        world.record("start", role=node.role, data_center=node.data_center)
        inbox = Inbox(world)
        membership = Membership(world, inbox, plan)
        store = _store(plan, node, world, inbox, plan.technique.codec_tier1)
        reading = world.spawn(inbox.run(), "inbox")
        await membership.join()
        rounds = await Worker(plan, node, store, learner).run(world, membership)
        await reading
        world.record("final", role=node.role, iterations=rounds, parameters_sha256=values_sha256(learner.values()))
        return learner.values()

    return run


def _server(plan: Plan, node: NodePlan) -> Role:
    async def run(world: World) -> None:
        world.record("start", role=node.role, data_center=node.data_center)
        inbox = Inbox(world)
        membership = Membership(world, inbox, plan)
        upstream = _upstream(plan, node, world, inbox)
        server = Server(world, inbox, _sync_policy(plan, node), _codec_maker(_codec_below(plan, node)), upstream)
        reading = world.spawn(inbox.run(), "inbox")
        await membership.join()
        await membership.ended()
        await reading
        world.record("final", role=node.role, parameters_sha256=values_sha256(server.values()))

    return run


def _upstream(plan: Plan, node: NodePlan, world: World, inbox: Inbox) -> Upstream:
    if node.parents:
        return ParentServers(world, _store(plan, node, world, inbox, plan.technique.codec_tier2))
    return Optimizing(world, plan.technique.optimizer)


def _store(plan: Plan, node: NodePlan, world: World, inbox: Inbox, codec: Choice) -> KVStore:
    technique = plan.technique
    slicer = SHARDS[technique.shard.kind]
    order = ORDERS[technique.order.kind]
    return KVStore(
        world,
        inbox,
        node.parents,
        make_codec(codec.kind, codec.options),
        slicer(slicer.Options(**technique.shard.options)).slices,
        order(order.Options(**technique.order.options)).priority,
    )


def _sync_policy(plan: Plan, node: NodePlan) -> SyncPolicy:
    choice = plan.technique.sync_tier1 if node.role == "server" else plan.technique.sync_tier2
    policy = SYNC[choice.kind]
    return policy(_contributors(plan, node), policy.Options(**choice.options))


def _contributors(plan: Plan, node: NodePlan) -> tuple[str, ...]:
    """Children that contribute to every round: training workers, or the servers of data centres that have one."""
    training = {worker.name for worker in plan.with_role("worker") if worker.trains}
    above = {parent for worker in plan.with_role("worker") if worker.trains for parent in worker.parents}
    return tuple(child for child in node.children if child in training or child in above)


def _codec_below(plan: Plan, node: NodePlan) -> Choice:
    return plan.technique.codec_tier1 if node.role == "server" else plan.technique.codec_tier2


def _codec_maker(choice: Choice) -> Callable[[], Codec]:
    return lambda: make_codec(choice.kind, choice.options)
