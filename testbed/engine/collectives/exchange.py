"""The worker of data-parallel training without servers: gradients are summed, and all workers take the same step.

If the synchronisation algorithm has local steps, the workers sum the changes of their models, each multiplied by the
worker's weight, and the outer optimizer makes the step. LAN rounds sum inside each data centre only.

When a worker is lost, the others agree on the last round that any of them has completed (``engine.peers``). A worker
that has not completed it takes over the state of one that has. The present workers sum the next round again, around a
new ring or tree. A worker that joins takes over the state as well.

With ``overlap: buckets``, the worker sums a bucket as soon as the backward pass has made its gradients, while the pass
goes on with earlier layers (as PyTorch's DistributedDataParallel: Li et al., VLDB 2020). The sums are the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from testbed import buffers
from testbed.engine import sync_setup
from testbed.engine.aggregation_weights import rescaling
from testbed.engine.assigned_steps import LocalStepCounts, Report
from testbed.engine.checkpoint import in_main_memory
from testbed.engine.collectives.collectives import Collectives
from testbed.engine.collectives.operation import CollectiveMail, unless_changed
from testbed.engine.collectives.step import OptimizerStep
from testbed.engine.collectives.sums import BucketSum
from testbed.engine.exchange import FinalScore, RoundDone
from testbed.engine.local_kinds import serverless_work
from testbed.engine.local_work import LocalResult, LocalWork, copying, load_batch
from testbed.engine.peers import NOTHING
from testbed.engine.serverless import Buckets, PlaceInRun, ServerlessExchange, split
from testbed.engine.slicing import optimizer_at_top
from testbed.plan.model import Plan
from testbed.plan.pace import step_shares
from testbed.policy.collective.options import bucket_bytes
from testbed.policy.events import Contribution
from testbed.policy.shard.slices import ELEMENT_BYTES, buckets_of
from testbed.policy.sync.streaming import fragments_of
from testbed.state import State, Stateful, below, under
from testbed.training.learner import SegmentedLearner
from testbed.world import Future, Work

Tasks = dict[int, Future[Any]]  # sums of buckets that have begun, by number


@dataclass(frozen=True, slots=True)
class Reduction:
    """The sum of each bucket, and the optimizer step that follows.

    weight  factor of this worker's contribution
    """

    sums: Sequence[BucketSum]
    step: OptimizerStep
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Reductions:
    """``across``: over all workers. ``inside``: of rounds that stay in a data centre, if there are any.

    reports  among all workers; needed where an algorithm assigns local steps
    """

    across: Reduction
    inside: Reduction | None = None
    reports: Collectives | None = None


Names = tuple[str, ...]  # the workers that take part
MakeReductions = Callable[[Any, CollectiveMail, list[Tensor], Names], Awaitable[Reductions]]


def data_parallel_exchange(
    plan: Plan,
    learner: SegmentedLearner,
    buckets: Buckets,
    make_reductions: MakeReductions,
    *,
    overlaps: bool,
) -> Callable[[PlaceInRun], AllReduceExchange]:
    """Return a function that makes the exchange of a worker, which sums contributions with all others by buckets.

    ``overlaps``: sum a bucket when its gradients are there, not after the whole backward pass.
    """
    kind = OverlappingAllReduce if overlaps else AllReduceExchange

    def make_exchange(place: PlaceInRun) -> AllReduceExchange:
        return kind(place, plan, learner, buckets, make_reductions)

    return make_exchange


class AllReduceExchange(ServerlessExchange):
    """All workers end a WAN round with the same bits; all workers of a data centre end a LAN round with the same bits.

    A worker has completed a round when all its sums are there (``Peers.progress``). Then the round counts for all, even
    if workers are lost. If the membership changes before, the round is summed again, from the codecs' earlier state.
    """

    _work: LocalWork
    _reductions: Reductions

    remembers = ("_memories", "_ends")

    def __init__(
        self,
        place: PlaceInRun,
        plan: Plan,
        learner: SegmentedLearner,
        buckets: Buckets,
        make_reductions: MakeReductions,
    ) -> None:
        super().__init__(place, plan, learner, buckets)
        self._make_reductions = make_reductions
        self._lan_rounds = sync_setup.lan_rounds(plan)
        gradients = sync_setup.contribution_of(plan) is Contribution.GRADIENT
        # with 'at: worker' a step follows the mean of all gradients, as it does with servers; otherwise their sum
        self._mean_of = len(plan.training_workers) if gradients and not optimizer_at_top(plan) else 1
        self._counts = LocalStepCounts(plan, self._world.node, [worker.name for worker in plan.training_workers])
        self._worked_s = 0.0  # the steps of the latest round, without an evaluation that is not ready yet
        self._begun: list[State] = []  # the state of the sums when the round began
        self._stepped: Future[None] = self._world.future()  # set when the values of the last round are there
        self._ends = False  # the last round announced the end of the run, which then ends with the present round
        self.end: float = plan.training.rounds

    async def prepare(self, values: list[Tensor]) -> None:
        self._work = serverless_work(self._plan, self._learner, values)
        if self._place.own is not None:
            self._work.make_step = self._place.own.make_step
        self._values = values
        self._reductions = await self._make(self._peers.names)
        self._peers.states.provide = self._provide
        self._stepped.set_result(None)

    async def _make(self, names: Names) -> Reductions:
        return await self._make_reductions(self._world, self._mail, self._values, names)

    @property
    def _memories(self) -> dict[str, Stateful]:
        parts: dict[str, Stateful] = {"work": self._work, "steps": self._counts}
        for prefix, reduction in (("", self._reductions.across), ("inside/", self._reductions.inside)):
            if reduction is not None:
                parts[f"{prefix}step"] = reduction.step
                parts |= {f"{prefix}sum/{number}": each for number, each in enumerate(reduction.sums)}
        return parts

    async def meet(self, resume: Callable[[], Awaitable[None]] | None) -> int:
        await super().meet(resume)
        return self._done

    @property
    def _done(self) -> int:
        """Return the number of rounds that this worker has completed."""
        assert self._peers.progress is not None, "it has reported"
        return self._peers.progress + 1

    async def settle(self) -> None:
        await self._work.receive_pending()

    async def finish(self, rounds: int) -> FinalScore:
        return FinalScore(rounds - 1, changed=await self._work.finish(self._world))

    async def run(self, round_: int, over: Callable[[RoundDone], None]) -> None:
        started_s = self._world.now()
        if self._peers.continues:
            work = Work("copy", size_bytes=4 * sum(self._learner.sizes))
            sums = self._reductions.across.sums
            self._begun = await self._world.compute(work, lambda: [each.state() for each in sums])
        result, reached, tasks = await self._compute(round_)
        telling = self._tell(round_)
        await self._exchanged(round_, result, reached, tasks)
        await self._hear(round_, telling)
        self._counts.measured(round_, result, self._worked_s)
        over(RoundDone(round_, started_s, result))

    def _crosses(self, round_: int) -> bool:
        return (round_ + 1) % self._lan_rounds == 0

    def _reduction(self, round_: int) -> Reduction:
        inside = self._reductions.inside
        return self._reductions.across if inside is None or self._crosses(round_) else inside

    async def _compute(self, round_: int) -> tuple[LocalResult, bool, Tasks]:
        """Do the local work of a round, and begin to sum all buckets at the same time.

        Return also whether this worker has reached the target.
        """
        self._work.since = self._reduction(round_).step.values()
        began_s = self._world.now()
        result = await self._work.run(self._world, round_, self._counts.of(round_))
        self._worked_s = self._world.now() - began_s
        reached = await self.evaluation.before_push(round_)
        return result, reached, await self._begin_all(result, round_, reached)

    async def _begin_all(self, result: LocalResult, round_: int, reached: bool) -> Tasks:
        tasks = {}
        for number, bucket in enumerate(self._buckets):
            if bucket[0] in result.contributions:
                tasks[number] = await self._begin(number, result.contributions, round_, reached)
        return tasks

    async def _exchanged(self, round_: int, result: LocalResult, reached: bool, tasks: Tasks) -> None:
        """Synchronise now, or let the next round's steps do it."""
        if self._work.is_late:
            self._work.pending.append(partial(self._synchronise, round_, result, reached, tasks))
        else:
            await self._synchronise(round_, result, reached, tasks)
        if self._ends:
            self.end = round_ + 1

    async def _begin(self, number: int, contributions: Mapping[int, Tensor], round_: int, reached: bool) -> Future[Any]:
        """Begin to sum a bucket.

        Only a sum over all workers announces that the target is reached: others would not hear it in one inside.
        """
        mine = [contributions[key] for key in self._buckets[number]]
        exchange = self._reduction(round_)
        flat = await self._world.compute(copying(mine), lambda: _joined(mine, exchange.weight))
        summing = partial(exchange.sums[number], flat, round_, reached and self._crosses(round_))
        return self._world.spawn(unless_changed(summing), "a bucket")

    async def _synchronise(self, round_: int, result: LocalResult, reached: bool, tasks: Tasks) -> None:
        """Wait for all sums; then step.

        The flag travels with the sums, so all workers hear of it in the same round and stop after it.
        """
        while (sums := await self._summed(tasks, round_)) is None:
            await self.agree()
            if self._done > round_:
                return  # another worker has completed the round, and this one has its values
            for one, memory in zip(self._reductions.across.sums, self._begun, strict=True):
                one.load_state(memory)
            tasks = await self._begin_all(result, round_, reached)
        self._stepped = self._world.future()
        self._peers.progress = round_  # before anything is awaited
        self._ends = any(raised for _, raised in sums) and self._crosses(round_)
        await self._take_step(round_, dict(zip(sorted(tasks), (total for total, _ in sums), strict=True)))
        self._stepped.set_result(None)

    async def _summed(self, tasks: Tasks, round_: int) -> list[tuple[Tensor, bool]] | None:
        """Return all sums with their flags; ``None`` if the membership has changed meanwhile."""
        ended = [
            await self._world.wait(task, f"the sum of bucket {number} in round {round_}")
            for number, task in sorted(tasks.items())
        ]
        if not self.grouped:
            return None
        return [each for _, each in ended]

    async def _take_step(self, round_: int, sums: Mapping[int, Tensor]) -> None:
        """Step with the sums of buckets, by number. If workers are missing, scale the sums up to stand for them."""
        missing, factor = rescaling(self._plan, self._peers.names)
        if missing:
            self._world.record("partial", round=round_, targets=", ".join(missing), factor=factor)
        totals: dict[int, Tensor] = {}
        for number, flat in sums.items():
            bucket = self._buckets[number]
            scaled = flat * factor if missing else flat
            scaled = scaled / self._mean_of if self._mean_of > 1 else scaled
            totals.update(zip(bucket, split(scaled, bucket, self._learner.sizes), strict=True))
        values = await self._reduction(round_).step(self._world, round_, {key: totals[key] for key in sorted(totals)})
        await self._work.take(self._world, round_, {key: values[key] for key in sorted(totals)})
        if self._reductions.inside is not None and self._crosses(round_):
            self._reductions.inside.step.load(values)

    def _tell(self, round_: int) -> Future[list[Tensor]] | None:
        """Begin to tell all others how long a step of the last round took."""
        reports = self._reductions.reports
        mine = self._counts.reports.get(self._world.node)
        if reports is None or mine is None or not self._crosses(round_):
            return None
        reports.round = round_
        return self._world.spawn(reports.all_gather(torch.tensor(mine, dtype=torch.float64)), "reports")

    async def _hear(self, round_: int, telling: Future[list[Tensor]] | None) -> None:
        reports = self._reductions.reports
        if telling is not None and reports is not None:
            gathered = await self._world.wait(telling, f"the reports of round {round_}")
            told = [Report(int(each[0]), float(each[1])) for each in gathered]
            self._counts.heard(round_, zip(reports.ranks, told, strict=True))

    # ---- changes of the membership ------------------------------------------------------------------------------

    async def regroup(self) -> None:
        before = self._reductions.across
        made = await self._make(self._peers.names)
        for one, kept in zip(made.across.sums, before.sums, strict=True):
            one.load_state(kept.state())
        self._reductions = replace(made, across=replace(made.across, step=before.step))

    async def take_place(self, state: State, round_: int) -> None:
        joins = self._peers.progress == NOTHING
        self._peers.progress = round_
        if joins:  # a joining worker counts the same steps as all others
            self._work.begin_at(sum(map(sync_setup.local_steps(self._plan), range(self._done))))
        self._stepped = self._world.future()
        self._ends = bool(state["last"])
        if self._ends:
            self.end = round_ + 1
        step = self._reductions.across.step
        step.load_state(below("step", state))
        await self._work.take(self._world, round_, dict(enumerate(step.values())))
        self._stepped.set_result(None)

    async def _provide(self) -> State:
        """Return the values of the last round, and all state on which the next step depends."""
        await self._world.wait(self._stepped, "the step of the round before")
        ended = self._ends or self._done == self._plan.training.rounds
        return under("step", in_main_memory(self._reductions.across.step.state())) | {"last": int(ended)}


class OverlappingAllReduce(AllReduceExchange):
    """Sums buckets during the backward pass. Segments of the model take their shares of the step's time."""

    async def _compute(self, round_: int) -> tuple[LocalResult, bool, Tasks]:
        await load_batch(self._learner, round_, round_)
        step = self._learner.begin(round_)
        shape = self._learner.shape
        shares = step_shares(self._plan.node(self._world.node), shape)
        for segment, (share, _) in enumerate(shares):
            work = Work("step", round_, steps=share, part=f"forward {segment}")
            await self._world.compute(work, partial(step.forward_segment, segment))
        reached = await self.evaluation.before_push(round_)
        gradients: dict[int, Tensor] = {}
        tasks: Tasks = {}
        for segment in reversed(range(len(shape.keys))):
            work = Work("step", round_, steps=shares[segment][1], part=f"backward {segment}")
            made = await self._world.compute(work, partial(step.backward_segment, segment))
            gradients.update(zip(shape.keys[segment], made, strict=True))
            for number, bucket in enumerate(self._buckets):
                if number not in tasks and gradients.keys() >= set(bucket):
                    tasks[number] = await self._begin(number, gradients, round_, reached)
        ascending = {key: gradients[key] for key in sorted(gradients)}
        return LocalResult(ascending, step.loss, step.samples, 1), reached, tasks


def buckets_by_fragment(plan: Plan, sizes: Sequence[int], bucket: int) -> Buckets:
    """Return the keys of each bucket. If fragments of the model take turns, a bucket has keys of one fragment only.

    bucket  the paradigm's option of this name, or 0: every key is a bucket of its own
    """
    streaming = sync_setup.streaming(plan)
    size_bytes = bucket_bytes(bucket, ELEMENT_BYTES * sum(sizes))
    if streaming is None:
        return buckets_of(sizes, size_bytes)
    return tuple(
        tuple(keys[place] for place in bucket)
        for keys in fragments_of(sizes, streaming.fragments)
        for bucket in buckets_of([sizes[key] for key in keys], size_bytes)
    )


def _joined(tensors: Sequence[Tensor], weight: float) -> Tensor:
    flat = buffers.joined(tensors)
    return flat if weight == 1.0 else flat.mul_(weight)
