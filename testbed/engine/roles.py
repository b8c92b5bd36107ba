"""Builds the role of each node of a Plan. Only this module knows how a role's parts are put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor

from testbed.aggregation import AGGREGATION
from testbed.engine import sync_setup
from testbed.engine.aggregation_weights import aggregation_weights, contribution_weight, summed_workers
from testbed.engine.checkpoint import Checkpointer, CheckpointFiles
from testbed.engine.collectives.inside import MakeLibrary, inside_store, neighbours_of
from testbed.engine.collectives.operation import CollectiveMail
from testbed.engine.collectives.roles import allreduce_exchange
from testbed.engine.departure import Departure
from testbed.engine.dgt.receiver import block_receiver
from testbed.engine.dgt.sender import block_route
from testbed.engine.driver import RoundDriver
from testbed.engine.evaluation import Evaluation
from testbed.engine.global_model import AsynchronousRootStore, GlobalModel
from testbed.engine.gossip.roles import gossip_exchange
from testbed.engine.guard import guarded
from testbed.engine.kvworker import KVWorker, ParentNodes, codec_maker
from testbed.engine.layer_exchange import LayerExchange
from testbed.engine.learner import make_learner, shape_of
from testbed.engine.local_kinds import local_work_of
from testbed.engine.local_model import LocalModelStore
from testbed.engine.membership import MEMBERSHIP_MESSAGES, Membership
from testbed.engine.mixing_exchange import mixing_exchange
from testbed.engine.overlay.wiring import NodeOverlays
from testbed.engine.peers import EpochMail, first_rounds, hands_over, has_servers
from testbed.engine.pipeline.memory import check_whole_memory
from testbed.engine.pipeline.roles import StageWorker, stage_worker
from testbed.engine.replica import Copies, ReplicatedRootStore
from testbed.engine.root_store import RootStore, parameter_state_maker
from testbed.engine.scheduler import Scheduler
from testbed.engine.script.exchange import ScriptExchange, script_job
from testbed.engine.script.thread import start_script
from testbed.engine.script.watch import ScriptWatch
from testbed.engine.server import Server, ServerMembers
from testbed.engine.server_exchange import ServerExchange, ServerParts
from testbed.engine.serverless import PlaceInRun, ServerlessExchange, serverless_worker
from testbed.engine.session import Session
from testbed.engine.slicing import optimizer_at_top, order_of, overlaps, slicer_of
from testbed.engine.summed_store import with_sums
from testbed.engine.trace.roles import trace_worker
from testbed.engine.upstream import ParentServers, Upstream
from testbed.messages import Message, MessageKind
from testbed.paradigms import PARADIGMS, OwnParadigm
from testbed.placing import place_of
from testbed.plan.asynchronous import is_scored_at_top, shares_rounds
from testbed.plan.model import NodePlan, Plan
from testbed.plan.stages import plan_of_stage
from testbed.policy.sync import SYNC
from testbed.state import Remembering, State, Stateful, joined, take_over
from testbed.training.learner import SegmentedLearner
from testbed.training.options import MODELS
from testbed.training.options.declarations import SCRIPT
from testbed.world import Role, World

# by paradigm without servers: the function that prepares a worker's exchange
EXCHANGES: dict[str, Callable[..., Callable[[PlaceInRun], ServerlessExchange]]] = {
    "allreduce": allreduce_exchange,
    "gossip": gossip_exchange,
}


def make_role(
    plan: Plan,
    node: NodePlan,
    files: CheckpointFiles | None = None,
    watch: ScriptWatch | None = None,
    make_library: MakeLibrary | None = None,
) -> Role:
    """Return the coroutine function that plays ``node``. This call already makes data and model: they need no clock.

    files         where checkpoints are written and read; ``None`` in a run without checkpoints
    watch         watches the scripts of this process
    make_library  makes the library that sums among the workers of a data centre, if the Plan has one
    """
    if node.role == "scheduler":
        return Scheduler(plan, files)
    if node.role == "replica":
        return _replica(plan, node, files)
    if node.role != "worker":
        return _server(plan, node, files)
    if MODELS[plan.training.model.kind].takes == SCRIPT:
        return _script(plan, node, files, watch)
    return _training_worker(plan, node, files, make_library)


def _training_worker(
    plan: Plan, node: NodePlan, files: CheckpointFiles | None, make_library: MakeLibrary | None
) -> Role:
    if plan.pipeline is not None:
        return _stage(plan, node, files)
    check_whole_memory(plan, node)
    if plan.traced is not None:
        return trace_worker(plan, node)
    kind = plan.technique.paradigm.kind
    paradigm = PARADIGMS[kind]
    exchange_of = mixing_exchange if issubclass(paradigm, OwnParadigm) else EXCHANGES.get(kind)
    if exchange_of is None:
        return _worker(plan, node, files, make_library)
    learner = guarded(plan, node, make_learner(plan, node, on_host=paradigm.models))
    make_exchange = exchange_of(plan, node, learner, **({"make_library": make_library} if make_library else {}))
    return serverless_worker(plan, node, learner, make_exchange, files)


def _stage(plan: Plan, node: NodePlan, files: CheckpointFiles | None) -> Role:
    """Return the role of a worker of a pipeline. It exchanges contributions and values of its own stage only."""
    stage = stage_worker(plan, node)
    if has_servers(plan):
        return _worker(stage.plan, stage.node, files, None, stage)
    make_exchange = EXCHANGES[plan.technique.paradigm.kind](stage.plan, stage.node, stage.learner)
    return serverless_worker(plan, node, stage.learner, make_exchange, files, stage.make_own, stage.plan)


def _worker(
    plan: Plan,
    node: NodePlan,
    files: CheckpointFiles | None,
    make_library: MakeLibrary | None,
    stage: StageWorker | None = None,
) -> Role:
    """Return the role of a worker with servers.

    ``stage``: for a worker of a pipeline; ``plan`` and ``node`` are then those of the stage
    """
    learner = stage.learner if stage else guarded(plan, node, make_learner(plan, node))
    whole = stage.whole if stage else plan
    work = local_work_of(plan, node, learner)
    shape = shape_of(plan, learner) if overlaps(plan) else None
    sums_first = bool(neighbours_of(plan, node))
    leaves_servers = shares_rounds(plan) and node.trains

    async def run(world: World) -> list[Tensor]:
        session = Session(whole, node, world)
        membership = session.membership
        overlays = NodeOverlays(plan, node, session)
        store = _store(plan, node, session, overlays)
        mail = CollectiveMail(world, session.inbox) if sums_first else None
        session.use(learner)
        own = stage.make_own(session) if stage else None
        departure = Departure(world, session.inbox, plan, node)
        await session.join()
        await session.peers.greet()
        summing = with_sums(world, plan, node, store)
        pushes = await inside_store(world, plan, store, mail, make_library) if mail else summing
        evaluation = own.evaluation if own else Evaluation(world, plan, learner)
        if own is not None:
            work.make_step = own.make_step
        has_state = hands_over(plan) and not optimizer_at_top(plan)
        parts = ServerParts(pushes, learner, work, evaluation, membership, session.peers, has_state)
        exchange = LayerExchange(world, plan, node, parts, shape) if shape else ServerExchange(world, plan, node, parts)
        exchange.workers = whole.first_workers
        driver = RoundDriver(session, whole, node, learner, exchange, files, departure)
        rounds = await driver.run()
        if leaves_servers and not driver.leaves:
            await store.leave()  # servers may hold other workers' replies until this worker has caught up
        await session.finish(driver.leaves)
        return await session.record_final(exchange.final_values(), rounds=rounds)

    return run


def _script(plan: Plan, node: NodePlan, files: CheckpointFiles | None, watch: ScriptWatch | None) -> Role:
    job = script_job(plan, node)

    async def run(world: World) -> list[Tensor]:
        session = Session(plan, node, world)
        store = _store(plan, node, session, NodeOverlays(plan, node, session))
        await session.join()
        await session.peers.greet()
        thread = start_script(plan, node, job, watch)
        exchange = ScriptExchange(session, plan, store, job, thread)
        try:
            rounds = await RoundDriver(session, plan, node, Remembering(), exchange, files).run()
        finally:
            thread.abandon()
        await store.leave()
        await session.finish()
        return await session.record_final(exchange.values, rounds=rounds)

    return run


def _server(plan: Plan, node: NodePlan, files: CheckpointFiles | None) -> Role:
    whole = plan
    if node.stage is not None:
        plan = plan_of_stage(whole, node.stage)
        node = plan.node(node.name)
    scores = is_scored_at_top(plan) and node == plan.with_role("global_server")[0]
    learner = make_learner(plan, node) if scores else None

    async def run(world: World) -> list[Tensor]:
        session = Session(whole, node, world)
        membership = session.membership
        overlays = NodeOverlays(plan, node, session)
        upstream = _upstream(plan, node, session, overlays, learner)
        relayed = overlays.towards_children()
        policy = sync_setup.sync_policy(plan, node)
        arriving = EpochMail(session.inbox, session.peers, together=policy.waits)
        blocks = block_receiver(plan, node, world, arriving)
        make_codec = codec_maker(plan, node.name)
        mail, send = relayed[:2] if relayed else (blocks or arriving, world.send)
        make_own = blocks.codecs(make_codec) if blocks else make_codec
        server = Server(world, mail, policy, make_own, upstream, _members_of(plan, node, session), send)
        session.peers.on_agreed.append(server.on_agreed)
        membership.on_members_lost.append(upstream.on_members_lost)
        membership.on_ready.append(lambda: upstream.on_members_lost(membership.absent))
        if blocks is not None:
            server.on_ended = blocks.forget
        if relayed:
            server.on_replied = relayed[2].on_replied if plan.recovery.on_failure == "continue" else None
        memories: dict[str, Stateful] = {"server": server}
        memories |= ({"overlay": relayed[2]} if relayed else {}) | ({"blocks": blocks} if blocks else {})
        if isinstance(upstream, AsynchronousRootStore):
            membership.on_trained = lambda: world.spawn(_finish(upstream, membership), "score the final model")
            session.inbox.on(MessageKind.SNAPSHOT, upstream.on_snapshot)
        _keep(session, whole, files, server, memories)
        await session.join()
        await session.peers.greet()
        await session.ended()
        if blocks is not None:
            blocks.settle()
        return await session.record_final(server.values())

    return run


async def _finish(top: AsynchronousRootStore, membership: Membership) -> None:
    await top.finish()
    await membership.tell_scheduler(Message(MessageKind.DONE))


def _keep(
    session: Session, plan: Plan, files: CheckpointFiles | None, server: Server, memories: Mapping[str, Stateful]
) -> None:
    """Save the ``memories`` of ``server`` in checkpoints, and load them again. Call this before the session joins."""
    world = session.world
    membership = session.membership

    async def state() -> State:
        await server.settle()
        return joined(memories)

    def on_ready() -> None:
        """Load the state before any message of a child is handled; a server that joins a run in progress has no state.

        A child may receive READY earlier than this server; then the child's messages wait.
        """
        checkpointer = Checkpointer(world, membership, plan, files)
        checkpointer.serve(state)
        if checkpointer.resumed:
            server.begin_at(checkpointer.first_round)
            take_over(memories, checkpointer.state)
            world.spawn(checkpointer.resume(), "resume")
        session.inbox.release()

    if files is not None and files.resumed is not None:
        session.inbox.hold(MEMBERSHIP_MESSAGES)
    membership.on_ready.append(on_ready)


def _replica(plan: Plan, node: NodePlan, files: CheckpointFiles | None) -> Role:
    """Return the role of a replica: it repeats every update of the global server, and takes over when that is lost."""
    (followed,) = plan.with_role("global_server")

    async def run(world: World) -> None:
        session = Session(plan, node, world)
        workers = summed_workers(plan, followed)
        top = RootStore(world, parameter_state_maker(plan), place_of(plan, node), waits=True, workers=workers)
        policy = sync_setup.sync_policy(plan, followed)
        arriving = EpochMail(session.inbox, session.peers, together=True)
        members = _members_of(plan, followed, session)
        server = Server(world, arriving, policy, codec_maker(plan, followed.name), top, members, world.send)
        session.peers.on_agreed.append(server.on_agreed)
        Copies(world, arriving, top, server)
        _keep(session, plan, files, server, {"server": server})
        await session.join()
        await session.ended()
        await session.record_final(top.values())

    return run


def _members_of(plan: Plan, server: NodePlan, session: Session) -> ServerMembers:
    technique = plan.technique
    choice = technique.aggregation_tier1 if server.role == "server" else technique.aggregation_tier2
    rule = AGGREGATION[choice.kind]
    return ServerMembers(
        aggregation_weights(plan, server),
        session.peers,
        lambda: first_rounds(plan, server, session.peers),
        sync_setup.rounds_apart(plan, server),
        None if rule.sums else rule(AGGREGATION.options(choice.kind, choice.options)),
        sync_setup.weighs_tokens(plan),
        sync_setup.averages(plan, server),
    )


def _upstream(
    plan: Plan, node: NodePlan, session: Session, overlays: NodeOverlays, learner: SegmentedLearner | None
) -> Upstream:
    """Return the upstream of a server. ``learner``: scores the model, if this server does; otherwise ``None``."""
    world = session.world
    if node.parents:
        store = _store(plan, node, session, overlays)
        own_model = sync_setup.local_model(plan)
        if own_model is not None:
            return LocalModelStore(world, store, own_model)
        counts_rounds = not SYNC[plan.technique.sync_tier1.kind].waits
        pushes_per_round = max(1, plan.training_workers_by_parent[node.name]) if counts_rounds else 0
        peers = session.peers

        def first_round() -> int:
            return min(first_rounds(plan, node, peers).values(), default=0)

        summing = with_sums(world, plan, node, store)
        return ParentServers(world, summing, contribution_weight(plan, node), pushes_per_round, first_round)
    make_state = parameter_state_maker(plan)
    replicas = plan.with_role("replica")
    place = place_of(plan, node)
    workers = summed_workers(plan, node)
    if replicas:
        return ReplicatedRootStore(world, session.inbox, make_state, replicas[0].name, place, workers)
    if shares_rounds(plan):
        model = GlobalModel(world, plan, learner) if learner is not None else None
        return AsynchronousRootStore(world, plan, node, make_state, model)
    return RootStore(world, make_state, place, waits=sync_setup.all_wait(plan), workers=workers)


def _store(plan: Plan, node: NodePlan, session: Session, overlays: NodeOverlays) -> KVWorker:
    world = session.world
    make_codec = codec_maker(plan, node.parents[0], node.name)
    at_top = plan.node(node.parents[0]).role == "global_server"
    together = SYNC[(plan.technique.sync_tier2 if at_top else plan.technique.sync_tier1).kind].waits
    parents = ParentNodes(
        node.parents, session.peers, session.membership.successors, together, at_top and plan.recovery.replicas > 0
    )
    arriving = EpochMail(session.inbox, session.peers, together=together)
    relayed = overlays.towards_parents(make_codec)
    mail, route = relayed or (session.inbox, block_route(plan, node, world, arriving))
    return KVWorker(world, mail, parents, make_codec, slicer_of(plan), order_of(plan).priority, route)
