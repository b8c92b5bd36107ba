"""From a Plan's node to the role that it plays. The only place that knows how the parts are put together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from torch import Tensor

from testbed.codec.base import Codec
from testbed.codec.table import make_codec
from testbed.engine import dgt, script, technique
from testbed.engine.checkpoint import Checkpointer
from testbed.engine.checkpoint_files import CheckpointFiles
from testbed.engine.collectives.roles import allreduce_worker
from testbed.engine.departure import Departure
from testbed.engine.gossip.roles import gossip_worker
from testbed.engine.guard import Guarded, guarded
from testbed.engine.inbox import Inbox
from testbed.engine.kvworker import CodecChoice, CodecMaker, KVWorker, PushRoute
from testbed.engine.learner import make_learner, shape_of
from testbed.engine.loading.trainer import begin_loading
from testbed.engine.membership import Membership
from testbed.engine.overlay.wiring import Overlay, ParentOverlay
from testbed.engine.pipeline import PipelinedWorker
from testbed.engine.replica import Chain, Copies
from testbed.engine.scheduler import Scheduler
from testbed.engine.script import ScriptWorker
from testbed.engine.server import Server
from testbed.engine.upstream import ParentServers, RootStore, Upstream
from testbed.engine.worker import Worker
from testbed.plan.model import NodePlan, Plan
from testbed.training.learner import values_sha256
from testbed.training.options import MODELS
from testbed.training.options.declarations import SCRIPT
from testbed.world import Role, World


def make_role(plan: Plan, node: NodePlan, files: CheckpointFiles | None = None) -> Role:
    """The coroutine function that plays ``node``; what it needs before the clock starts (data, model) is made here.

    ``files``: where checkpoints go and come from, for runs that have any.
    """
    if node.role == "scheduler":
        return Scheduler(plan, files)
    if node.role == "worker":
        if MODELS[plan.training.model.kind].takes == SCRIPT:
            return _script(plan, node)
        other = _WORKERS.get(plan.technique.paradigm.kind)
        return other(plan, node) if other else _worker(plan, node, files)
    return _replica(plan, node) if node.role == "replica" else _server(plan, node, files)


_WORKERS = {"allreduce": allreduce_worker, "gossip": gossip_worker}


def _worker(plan: Plan, node: NodePlan, files: CheckpointFiles | None) -> Role:
    learner = guarded(plan, node, make_learner(plan, node))
    work = technique.local_work(plan, node, learner)
    shape = shape_of(plan, learner) if technique.overlaps(plan) else None

    async def run(world: World) -> list[Tensor]:
        world.record("start", role=node.role, data_center=node.data_center)
        inbox = Inbox(world)
        membership = Membership(world, inbox, plan)
        store = _store(plan, node, world, inbox, Overlay(plan, node, world, inbox))
        begin_loading(learner, world, inbox)
        membership.on_heir, departure = store.fail_over_to, Departure(world, inbox, plan, node)
        reading = world.spawn(inbox.run(), "inbox")
        await membership.join()
        store.epoch = membership.epoch
        if isinstance(learner, Guarded):
            learner.record = world.record
        worker = Worker(plan, node, store, learner, work)
        if shape is not None:
            worker = PipelinedWorker(plan, node, store, learner, work, shape)
        worker.keeper, worker.departure = Checkpointer(world, membership, plan, files), departure
        rounds = await worker.run(world, membership)
        await reading
        world.record("final", role=node.role, rounds=rounds, parameters_sha256=values_sha256(learner.values()))
        return learner.values()

    return run


def _script(plan: Plan, node: NodePlan) -> Role:
    path, job = Path(plan.training.model.options["file"]), technique.script_job(plan, node)

    async def run(world: World) -> list[Tensor]:
        world.record("start", role=node.role, data_center=node.data_center)
        inbox = Inbox(world)
        membership = Membership(world, inbox, plan)
        store = _store(plan, node, world, inbox, Overlay(plan, node, world, inbox))
        reading = world.spawn(inbox.run(), "inbox")
        await membership.join()
        worker = ScriptWorker(world, membership, store, job, plan.training.rounds, technique.local_steps(plan))
        await worker.run(script.start(path, job, plan.seed))
        await store.leave()
        await membership.finish()
        await reading
        digest = values_sha256(worker.values)
        world.record("final", role=node.role, rounds=worker.rounds, parameters_sha256=digest)
        return worker.values

    return run


def _server(plan: Plan, node: NodePlan, files: CheckpointFiles | None) -> Role:
    async def run(world: World) -> None:
        world.record("start", role=node.role, data_center=node.data_center)
        inbox = Inbox(world)
        membership = Membership(world, inbox, plan)
        overlay = Overlay(plan, node, world, inbox)
        upstream, below = _upstream(plan, node, world, inbox, overlay), overlay.below()
        policy = technique.sync_policy(plan, node)
        make_codec, blocks = _codec_maker(plan, node.name), dgt.receiving(plan, node, world, inbox)
        if blocks is not None:
            make_codec = dgt.assembled(make_codec)
        mail = below.mail if below else inbox
        shares = technique.shares(plan, node)
        server = Server(world, blocks or mail, policy, make_codec, upstream, shares, below.send if below else None)
        membership.on_left = partial(_lose, server, upstream)
        if isinstance(upstream, Chain):
            server.tell_joined = upstream.joined
        if isinstance(upstream, ParentServers):
            membership.on_heir = upstream.fail_over_to
        keeper = Checkpointer(world, membership, plan, files)
        if keeper.resumed:
            server.load_state(keeper.state)
            server.begin_at(keeper.first_round)
        keeper.serve(server.state)
        reading = world.spawn(inbox.run(), "inbox")
        await membership.join()
        server.absent(membership.gone)
        if isinstance(upstream, ParentServers):
            upstream.came_in(membership.epoch)
        await membership.ended()
        await reading
        if blocks is not None:
            blocks.settle()
        world.record("final", role=node.role, parameters_sha256=values_sha256(server.values()))

    return run


def _lose(server: Server, upstream: Upstream, nodes: Sequence[str], epoch: int) -> None:
    server.lost(nodes, epoch)
    if isinstance(upstream, Chain):
        upstream.lost(nodes)


def _replica(plan: Plan, node: NodePlan) -> Role:
    """The global server once more: it is told what that one does, until children come because it is gone."""
    (followed,) = plan.with_role("global_server")

    async def run(world: World) -> None:
        world.record("start", role=node.role, data_center=node.data_center)
        inbox = Inbox(world)
        membership = Membership(world, inbox, plan)
        top, make_codec = RootStore(world, technique.top_key(plan)), _codec_maker(plan, followed.name)
        copies = Copies(world, inbox, top, make_codec)
        policy = technique.sync_policy(plan, followed)
        server = Server(world, copies, policy, make_codec, top, technique.shares(plan, followed))
        copies.on_made, copies.on_joined = lambda round_: server.begin_at(round_ + 1), server.resume_member
        membership.on_left = server.lost
        reading = world.spawn(inbox.run(), "inbox")
        await membership.join()
        server.absent(membership.gone)
        await membership.ended()
        await reading
        world.record("final", role=node.role, parameters_sha256=values_sha256(top.values()))

    return run


def _upstream(plan: Plan, node: NodePlan, world: World, inbox: Inbox, overlay: Overlay) -> Upstream:
    if node.parents:
        store = _store(plan, node, world, inbox, overlay)
        own_rounds = not technique.sync_kind(plan.technique.sync_tier1).waits
        late = plan.recovery.on_failure == "continue"
        return ParentServers(world, store, technique.party_weight(plan, node), own_rounds, late)
    top = RootStore(world, technique.top_key(plan))
    replicas = plan.with_role("replica")
    return Chain(world, inbox, top, replicas[0].name) if replicas else top


def _store(plan: Plan, node: NodePlan, world: World, inbox: Inbox, overlay: Overlay) -> KVWorker:
    make_codec = _codec_maker(plan, node.parents[0])
    above = overlay.above(make_codec)
    store = KVWorker(
        world,
        above.mail if above else inbox,
        node.parents,
        make_codec,
        technique.slicer(plan),
        technique.order(plan).priority,
        _way(plan, node, world, inbox, above),
    )
    store.keeps = plan.recovery.replicas > 0 and plan.node(node.parents[0]).role == "global_server"
    return store


def _way(plan: Plan, node: NodePlan, world: World, inbox: Inbox, above: ParentOverlay | None) -> PushRoute | None:
    if above is not None:
        return PushRoute(above.send, above.declared)
    send = dgt.sending(plan, node, world, inbox)
    return None if send is None else PushRoute(send)


def _codec_maker(plan: Plan, server: str) -> CodecMaker:
    """Makes one end of a connection between ``server`` and a child of it; over the WAN, in what a script has chosen."""
    node = plan.node(server)
    tier = 1 if node.role == "server" else 2
    choice = plan.technique.codec_tier1 if tier == 1 else plan.technique.codec_tier2
    members = len(technique.contributors(plan, node))

    def make(said: CodecChoice | None = None) -> Codec:
        kind, options = said if said and tier == 2 else (choice.kind, choice.options)
        return make_codec(kind, options, tier, members, plan.seed)

    return make
