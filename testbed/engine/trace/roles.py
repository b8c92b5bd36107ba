"""The role of a worker that plays one rank of a job's execution trace. Such a run has workers and a scheduler.

A round plays the whole trace once; a rank begins the next round when all of its nodes have ended.
"""

from __future__ import annotations

from torch import Tensor

from testbed.engine.collectives.operation import CollectiveMail
from testbed.engine.membership import TRAIN
from testbed.engine.session import Session
from testbed.engine.trace.collectives import TraceCollectives
from testbed.engine.trace.player import Player
from testbed.errors import ScenarioError
from testbed.job_trace.model import RankTrace
from testbed.job_trace.reading import digest_of, groups_of, read_rank
from testbed.plan.model import NodePlan, Plan
from testbed.settings.job import TracedJob
from testbed.world import Role, World


def trace_worker(plan: Plan, node: NodePlan) -> Role:
    """Return the role of ``node``. There are no checkpoints.

    Raise ``ScenarioError`` if the trace has changed since the Plan was made.
    """
    job = plan.traced
    assert job is not None, "a worker plays a trace where the Plan has one"
    trace = _trace_of(job, job.ranks.index(node.name))

    async def run(world: World) -> list[Tensor]:
        session = Session(plan, node, world)
        mail = CollectiveMail(world, session.inbox)
        await session.join()
        rounds = plan.training.rounds
        workers = len(job.ranks)
        await session.membership.barrier(TRAIN, workers)
        if trace.rank == 0:
            world.record("train", rounds=rounds, workers=workers)
        collectives = TraceCollectives(plan, node, world, mail, groups_of((trace,), job.groups))
        player = Player(plan, node, world, mail, trace, collectives)
        for round_ in range(rounds):
            started_s = world.now()
            await player.play(round_)
            world.record("round", t0=started_s, round=round_, loss=None, samples=None, steps=1)
        await session.finish()
        return await session.record_final([], rounds=rounds)

    return run


def _trace_of(job: TracedJob, rank: int) -> RankTrace:
    if digest_of(job.trace, job.kineto, job.groups) != job.sha256:
        raise ScenarioError(f"workload.trace: {job.trace} has changed since the scenario was read; start the run again")
    return read_rank(job.trace, rank, job.kineto)
