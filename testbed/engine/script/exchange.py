"""A user's script as a worker's exchange: carries out the requests of the script's thread.

The script contains the loop over steps, so the driver cannot tell it when a round begins. But the script's thread waits
in each request until it is answered. So the driver controls when the script continues: ``run`` continues it until the
request that ends a round is answered and the next request is there; ``settle`` until a checkpoint can be made.

The script really computes (``World.compute`` of kind ``USER_CODE``). A training step then takes the modelled time of
the worker's device, counted from when the script began to compute. A single push of the script ends as many steps as
the algorithm has in a round, unless the script has reported each step by ``store.step``.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import astuple
from functools import partial
from typing import Any

from torch import Tensor

from testbed import buffers
from testbed.codec.options import CODECS
from testbed.costs import USER_CODE
from testbed.engine import sync_setup
from testbed.engine.aggregation_weights import contribution_weight
from testbed.engine.buckets import Buckets, script_buckets_of
from testbed.engine.evaluation import Evaluation
from testbed.engine.exchange import Exchange, FinalScore, RoundDone
from testbed.engine.keys import KeyPush, declared
from testbed.engine.kvworker import KVWorker
from testbed.engine.local_work import LocalResult, copying
from testbed.engine.membership import BEGUN, SCRIPTS, TRAIN
from testbed.engine.peers import hands_over
from testbed.engine.reply import ReplyControl, merge_controls
from testbed.engine.script.thread import ScriptThread
from testbed.engine.session import Session
from testbed.engine.slicing import shapes_to_declare
from testbed.errors import RunFailed
from testbed.finite import end_or_leave_out
from testbed.key_shape import shapes_of
from testbed.kvstore.session import Posted, ScriptJob, ScriptOptimizer
from testbed.kvstore.store import pull_of
from testbed.plan.model import NodePlan, Plan
from testbed.policy.events import Contribution
from testbed.policy.order import ORDERS
from testbed.policy.overlay import OVERLAYS
from testbed.policy.sync import SYNC
from testbed.results.events import NO_STEP, NOT_EXCHANGED, NOT_FINISHED
from testbed.state import State, below, under
from testbed.world import Future, Work

Request = tuple[str, tuple[Any, ...]]  # its name, and its arguments
BEGIN = "begin"  # of a script that has declared its keys
BETWEEN_STEPS = "between_steps"
_MEETING = "all scripts to make as many steps, and to call finish() or store.barrier()"


class ScriptExchange(Exchange):
    """Carries out the requests of one script (``testbed.kvstore.session``), each by a method of its own.

    values  the script's final values, by key
    rounds  the number of completed rounds
    """

    def __init__(
        self,
        session: Session,
        plan: Plan,
        store: KVWorker,
        job: ScriptJob,
        thread: ScriptThread,
    ) -> None:
        self._world = session.world
        self._thread = thread
        if self._world.call_from_thread is not None:
            thread.on_posted = partial(self._world.call_from_thread, self._on_posted)
        self._next: Request | None = None  # the script's request that is not yet carried out
        self._answer: Any = None  # to the request before
        self._ended = False
        self._over: Callable[[RoundDone], None] = lambda done: None
        self._round = -1  # the last round that the driver has asked for
        self._stands = False  # the script's time stands still: all workers begin to train, or write a checkpoint
        self._is_kept = False  # this run has made a checkpoint, or begins with one
        self._unkept_round = -1  # the last round after which a checkpoint was due
        self._resumed: State = {}
        self.evaluation = Evaluation(self._world, plan, None)
        self.workers = job.workers
        self.end = math.inf  # until the script has ended
        self._store = store
        self._job = job
        self._membership = session.membership
        self._peers = session.peers
        self._has_state = hands_over(plan)  # a joining script takes over another script's objects
        self._next_step = 0
        self._carrying_out: Future[None] | None = None  # set when the posted requests are carried out
        if self._has_state:
            self._peers.states.provide = self._provide
        self._get_objects: Callable[[], Tensor] | None = None
        self._get_optimizer: Callable[[], Tensor] | None = None
        self._taken: State | None = None  # state taken over from another worker
        self._declared_steps = sync_setup.local_steps(plan)  # by round; scripts are never assigned other steps
        self._plan = plan
        self._buckets = Buckets(())
        self._began_s = self._world.now()
        self._untimed_s = 0.0
        self._untimed = 0
        self._round_began_s = self._world.now()
        self._next_round: dict[int, int] = {}  # by key
        self._taken_keys: set[int] = set()  # keys whose new values the script has taken in this round
        self._round_keys: set[int] = set()  # keys whose values it took in the whole round before
        self._timed_steps = 0  # rounds whose steps have taken their modelled time
        self._local_steps = 0  # steps reported in this round so far
        self._pushed_steps: dict[int, int] = {}  # by round: the steps that its first push has ended
        self._barriers = self.rounds = 0
        self._has_final_values = self._score_may_be_early = False
        self._values: list[Sequence[Tensor]] = []  # by key: the pieces in which the value arrived
        self.values: list[Tensor] = []
        self._get_parameters: Callable[[], list[Tensor]] | None = None
        self._get_rates: Callable[[], str] = str

        self._requests: dict[str, Callable[..., Awaitable[Any]]] = {
            "barrier": self.barrier,
            "exchange": self.exchange,
            "finish": self.take_final_values,
            "first_round": self.first_round,
            "holds": self.holds,
            BETWEEN_STEPS: self.between_steps,
            "not_finite": self.not_finite,
            "push": self.push,
            "resume": self.resume,
            "score": self.take_score,
            "step": self.step,
            "take_over": self.take_over,
            "untimed": self.untimed,
            "value": self.value,
        }

    # ---- the driver's side --------------------------------------------------------------------------------------

    async def begin(self, state: State | None, after: int) -> None:
        await self._go_on(lambda what: what == BEGIN)
        if self._next is None:
            return  # the script has ended without a store
        values, optimizer, compression, together, dimensions = self._next[1]
        codec = compression[0] if compression else None
        self._buckets = script_buckets_of(self._plan, [value.numel() for value in values], together, codec)
        if state is not None:
            self._store.load_state(below("store", state))
        shapes = shapes_to_declare(self._plan, shapes_of(dimensions), codec)
        await self._store.declare(declared(self._buckets.sizes, shapes=shapes, codec=compression))
        if optimizer is not None:
            self._has_state = False  # the servers have the optimizer, so their values are the whole state
        if state is not None:
            self._load_state(state)
            self._peers.begun(after)
        elif self._membership.joined_late:
            await self._pull()
            self._begin_at(self._peers.first_round(self._world.node))
        else:
            if self._job.rank == 0:
                await self._set_first_values(values, optimizer)
            await self._pull()
        self._round = self.rounds - 1
        self._stands = True

    async def _set_first_values(self, values: list[Tensor], optimizer: ScriptOptimizer | None) -> None:
        notes = {"optimizer": list(astuple(optimizer))} if optimizer else None
        first = await self._buckets.joined(self._world, dict(enumerate(values)))
        for number, value in first.items():
            await self._store.init(number, value, notes)

    async def meet(self, resume: Callable[[], Awaitable[None]] | None) -> int:
        if self._ended:
            return 0
        if resume is not None:
            await resume()
        elif self._membership.joined_late:
            await self._membership.barrier(BEGUN, 1)
        else:
            await self._membership.barrier(TRAIN, self._job.workers)
        return self.rounds

    async def run(self, round_: int, over: Callable[[RoundDone], None]) -> None:
        """Continue the script until the round is over. One request may end several rounds if it takes no values."""
        self._over = over
        self._round = round_
        await self._go_on(lambda what: self.rounds > round_)

    async def settle(self) -> None:
        """Continue the script to the end of its step, where a checkpoint can be made."""
        self._unkept_round = self.rounds - 1
        await self._go_on(lambda what: what in (BETWEEN_STEPS, "push", "exchange"))

    @property
    def can_keep(self) -> bool:
        """Whether the script is between two steps of ``store.steps``, and the driver's round is its last full one."""
        at_end_of_step = self._next is not None and self._next[0] == BETWEEN_STEPS
        return at_end_of_step and self.rounds == self._round + 1 and self._store.idle

    async def finish(self, rounds: int) -> FinalScore:
        self._warn_of_no_checkpoint()
        self._warn_of_mixed_up_ranks()
        self._tell_end()
        self.values = self._current_values()
        return FinalScore(rounds - 1, changed=False)

    async def _go_on(self, stops: Callable[[str], bool]) -> None:
        """Carry out requests until the script ends, or makes a request for which ``stops`` is true; keep that one."""
        while (request := await self._request()) is not None:
            what, arguments = request
            if stops(what):
                return
            self._next = None
            self._answer = await self._requests[what](*arguments)

    async def _request(self) -> Request | None:
        """Return the script's next request once all posted ones are carried out; ``None``: the script has ended."""
        if self._stands:
            await self._begin_again()
        if self._next is not None or self._ended:
            return self._next
        turn = Work(USER_CODE, self.rounds)
        self._next = await self._world.compute(turn, partial(self._thread.resume, self._answer))
        while self._thread.posted or self._carrying_out is not None:
            self._on_posted()
            assert self._carrying_out is not None
            await self._world.wait(self._carrying_out, "the pushes before")
        if self._next is None:
            self._ended = True
            if self._taken_keys:
                self._round_is_over(self.rounds)
            self.end = self.rounds
        return self._next

    async def _begin_again(self) -> None:
        """Let the script's time go on, now that all have begun to train, or have written a checkpoint."""
        self._stands = False
        self._restart()
        self._round_began_s = self._world.now()
        if self._next is not None and self._next[0] == BEGIN:
            self._next = None
            self._answer = await self._copies(self._values)

    def _on_posted(self) -> None:
        if self._carrying_out is None and self._thread.posted:
            self._carrying_out = self._world.spawn(self._carry_out(), "pushes of the script")

    async def _carry_out(self) -> None:
        while self._thread.posted:
            posted, what, arguments = self._thread.posted.popleft()
            posted.answer = await self._requests[what](*arguments)
        self._carrying_out = None

    # ---- requests -----------------------------------------------------------------------------------------------

    async def _pull(self) -> None:
        pulled = await self._store.pull(range(len(self._buckets.sizes)))
        self._values = [[value] for value in self._buckets.split(dict(enumerate(pulled))).values()]

    def _begin_at(self, round_: int) -> None:
        self._next_round = dict.fromkeys(range(len(self._values)), round_)
        self.rounds = self._timed_steps = round_
        self._next_step = sum(map(self._declared_steps, range(round_)))

    async def first_round(self) -> int:
        if not self._membership.joined_late:
            return 0
        await self._peers.settle()
        return self._peers.first_round(self._world.node)

    async def _copies(self, values: Sequence[Sequence[Tensor]]) -> list[Tensor]:
        work = copying([piece for value in values for piece in value])
        return await self._world.compute(work, lambda: [buffers.joined(value) for value in values])

    async def push(self, key: int, tensor: Tensor, priority: int | None, untaken: Sequence[tuple[int, Posted]]) -> int:
        for other, before in untaken:
            self._store.drop(other, before.answer)
        round_ = self._next_round.get(key, 0)
        if round_ > self.rounds and key in self._taken_keys:
            self._round_is_over(self.rounds)  # the script takes no more values of that round
        if round_ == self.rounds:
            self._note_done()
        self._next_round[key] = round_ + 1
        if round_ >= self._timed_steps:
            steps = self._pushed_steps[round_] = self._declared_steps(round_)
            await self._step(round_, steps)
        await self._store.push(KeyPush(key, round_, tensor, priority=priority))
        return round_

    async def value(self, key: int, after: int | Posted) -> tuple[Sequence[Tensor], Tensor]:
        round_: int = after.answer if isinstance(after, Posted) else after
        if round_ >= 0:
            self._values[key], _ = await self._store.pieces(key, round_)
            self._on_key(key, round_)
        self._restart()
        return self._values[key], (await self._copies([self._values[key]]))[0]

    async def exchange(
        self, tensors: Mapping[int, Tensor], steps: int, without_gradient: Collection[int] = ()
    ) -> tuple[dict[int, Tensor], int]:
        self._note_done()
        round_ = self.rounds
        without = set(without_gradient)
        await self._step(round_)
        contributions = await self._buckets.joined(self._world, tensors)
        for number, tensor in contributions.items():
            notes = {"no_gradient": True} if without.issuperset(self._buckets.keys[number]) else {}
            await self._store.push(KeyPush(number, round_, tensor, notes))
        control = merge_controls([await self._receive(number, round_) for number in contributions])
        self._round_is_over(round_, steps, control.waited_s)
        copies = await self._copies([self._values[key] for key in tensors])
        return dict(zip(tensors, copies, strict=True)), self._declared_steps(self.rounds)

    async def _receive(self, number: int, round_: int) -> ReplyControl:
        """Take the values of a bucket."""
        pieces, control = await self._store.pieces(number, round_)
        keys = self._buckets.keys[number]
        if len(keys) == 1:
            self._values[keys[0]] = pieces
        else:
            (value,) = pieces if len(pieces) == 1 else await self._copies([pieces])
            for key, part in self._buckets.split({number: value}).items():
                self._values[key] = [part]
        return control

    async def resume(self) -> tuple[int, int, Tensor | None] | None:
        if self._resumed:
            self._note_done()
            return self._resumed["step"], self._declared_steps(self.rounds), self._resumed["content"]
        if not self._membership.joined_late or self.rounds == 0:
            return None
        content = (await self._take_over()).get("objects")
        return self._next_step, self._declared_steps(self.rounds), content

    async def take_over(self) -> tuple[list[Tensor], Tensor] | None:
        state = await self._take_over()
        if "optimizer" not in state:
            return None
        parameters = below("parameter", state)
        return [parameters[str(number)] for number in range(len(parameters))], state["optimizer"]

    async def _take_over(self) -> State:
        """Return another worker's state from before this script's first round; empty if it is not needed."""
        if self._taken is None:
            needed = self._has_state and self._membership.joined_late and self.rounds > 0
            self._taken = await self._peers.state_after(self.rounds - 1) if needed else {}
            self._note_done()
        return self._taken

    def _note_done(self) -> None:
        """Note that the script has taken the values of the last round, because it has made another call since."""
        self._peers.states.done(self.rounds - 1)

    async def _provide(self) -> State:
        """Return the state that a joining script needs. It is made as work of this script, after its turn has ended."""

        def state() -> State:
            with self._thread.in_place():
                objects = {"objects": self._get_objects()} if self._get_objects else {}
                if self._get_optimizer is None or self._get_parameters is None:
                    return objects
                parameters = {str(number): each for number, each in enumerate(self._get_parameters())}
                return objects | {"optimizer": self._get_optimizer()} | under("parameter", parameters)

        return await self._world.compute(Work(USER_CODE, self.rounds), state)

    async def between_steps(self, step: int, get: Callable[[], Tensor]) -> None:
        """Note that the script is between steps. If a checkpoint was due here, the driver has had it made."""
        self._get_objects = get
        self._note_done()
        if self._unkept_round == self.rounds - 1 and not self._store.idle:
            raise RunFailed(
                f"{self._world.node}: a checkpoint is due, but the script has not waited for all its pushes"
            )

    def state(self) -> State:
        assert self._next is not None, "a checkpoint of a script that has ended"
        step, get = self._next[1]
        self._is_kept = True
        self._stands = True
        with self._thread.in_place():
            state: State = {
                "step": step,
                "content": get(),
                "rounds": self.rounds,
                "timed_steps": self._timed_steps,
                "barriers": self._barriers,
                "round_keys": " ".join(map(str, sorted(self._round_keys))),
            }
            # the values may be sums of gradients; a resumed script begins with parameters all the same
            values = self._current_values()
        state |= under("value", {str(key): value for key, value in enumerate(values)})
        state |= under("next", {str(key): round_ for key, round_ in self._next_round.items()})
        return state | under("store", self._store.state())

    def _current_values(self) -> list[Tensor]:
        if self._get_parameters:
            return self._get_parameters()
        return [value[0] if len(value) == 1 else buffers.joined(value) for value in self._values]

    def _load_state(self, state: Mapping[str, Any]) -> None:
        values = below("value", state)
        self._values = [[values[str(key)]] for key in range(len(values))]
        self._next_round = {int(key): round_ for key, round_ in below("next", state).items()}
        self.rounds = state["rounds"]
        self._is_kept = True
        self._resumed = dict(state)
        self._timed_steps = state["timed_steps"]
        self._barriers = state["barriers"]
        self._round_keys = set(map(int, state.get("round_keys", "").split()))

    def _tell_end(self) -> None:
        """Warn if the result is doubtful: the script made no step, or made steps after its last exchange."""
        if self.rounds == self._timed_steps == self._local_steps == 0:
            message = "the script made no step: it got no batch, or did not enter its loop"
            self._world.record("warning", message=message, cause=NO_STEP)
        elif self._local_steps:
            steps = "step" if self._local_steps == 1 else "steps"
            message = f"the script made {self._local_steps} {steps} after its last exchange, which nobody else has seen"
            self._world.record("warning", message=message, cause=NOT_EXCHANGED)
        if self._score_may_be_early:
            message = "the script has reported no score after optimizer.finish() (or store.finish())"
            self._world.record("warning", message=message, cause=NOT_FINISHED)

    def _warn_of_mixed_up_ranks(self) -> None:
        store = self._thread.store
        if self._job.rank == 0 and store is not None and (message := store.mixed_up_ranks()):
            self._world.record("warning", message=message)

    def _warn_of_no_checkpoint(self) -> None:
        if self._job.checkpoints and not self._is_kept and self._job.rank == 0:
            message = "no checkpoint was made: let the script loop over store.steps(count, model=…, optimizer=…)"
            self._world.record("warning", message=message)

    async def holds(
        self, get: Callable[[], list[Tensor]], get_optimizer: Callable[[], Tensor], get_rates: Callable[[], str]
    ) -> None:
        self._get_parameters = get
        self._get_optimizer = get_optimizer
        self._get_rates = get_rates

    async def not_finite(self, what: str, where: str, count: int, can_be_left_out: bool) -> None:
        step = sum(map(self._declared_steps, range(self.rounds))) + self._local_steps
        found = f"non-finite {what}: {self._world.node}, step {step}, {where}, {count} elements"
        end_or_leave_out(found, self._job.on_nan, self._world.record, can_be_left_out=can_be_left_out)

    async def step(self) -> None:
        await self._step(self.rounds)
        self._local_steps += 1

    async def barrier(self) -> None:
        rounds_begun = self.rounds + 1 if self._local_steps else self.rounds
        await self._meet(max([rounds_begun, *self._next_round.values()]))

    async def _meet(self, rounds_begun: int | None) -> None:
        """Wait at a barrier for all other workers that will come to it.

        rounds_begun  rounds begun by this worker: a joining worker comes to this barrier if its first round is earlier;
                      ``None``: all workers come, whatever their first round
        """
        self._barriers += 1
        if self._job.continues:
            await self._membership.barrier(SCRIPTS, waiting_for=_MEETING, rounds_begun=rounds_begun)
        else:
            await self._membership.barrier(f"{SCRIPTS} {self._barriers}", self._job.workers, waiting_for=_MEETING)
        self._restart()

    async def take_final_values(self) -> list[Tensor] | None:
        await self._meet(None)
        if not self._job.at_server or self._job.rank > 0:
            return None
        self._has_final_values = True
        self._values = [[value] for value in await self._store.pull(range(len(self._values)), newest=True)]
        self._restart()
        return await self._copies(self._values)

    async def untimed(self, on: bool) -> None:
        self._untimed += 1 if on else -1  # such blocks may be nested
        if on and self._untimed == 1:
            self._untimed_s = self._world.now()
        elif not self._untimed:  # a request that waited within the block has restarted the step
            self._began_s += self._world.now() - max(self._untimed_s, self._began_s)

    async def take_score(self, accuracy: float | None, loss: float | None) -> None:
        if self._job.rank == 0 and (accuracy is not None or loss is not None):
            self._score_may_be_early = self._job.at_server and not self._has_final_values
            known = {} if accuracy is None else {"accuracy": accuracy}
            self._world.record(
                "evaluate", round=max(0, self.rounds - 1), **known, loss=loss, snapshot_t=self._world.now()
            )

    async def _step(self, round_: int, steps: int = 1) -> None:
        self._timed_steps = max(self._timed_steps, round_ + 1)
        await self._world.compute(Work("step", round_, steps=steps, began_s=self._began_s), lambda: None)
        self._restart()

    def _restart(self) -> None:
        self._began_s = self._world.now()

    def _on_key(self, key: int, round_: int) -> None:
        """End a round of single pushes and pulls when the script has taken the values of all keys that it uses.

        These are the keys that it took in the round before; in its first round, all keys.
        """
        while round_ > self.rounds:
            self._round_is_over(self.rounds)
        if round_ == self.rounds:
            self._taken_keys.add(key)
            if self._taken_keys >= (self._round_keys or set(range(len(self._values)))):
                self._round_is_over(round_)

    def _round_is_over(self, round_: int, steps: int | None = None, waited_s: float = 0.0) -> None:
        """Report the end of a round. ``steps``: by default those that its first push ended, or the script reported."""
        pushed_steps = self._pushed_steps.pop(round_, 0)
        if steps is None:
            steps = pushed_steps or max(1, self._local_steps)
        self._round_keys, self._taken_keys = self._taken_keys or self._round_keys, set()
        result = LocalResult({}, None, None, steps)
        self._over(RoundDone(round_, self._round_began_s, result, waited_s, self._get_rates()))
        self.rounds = round_ + 1
        self._local_steps = 0
        self._restart()
        self._round_began_s = self._world.now()


def script_job(plan: Plan, node: NodePlan) -> ScriptJob:
    technique = plan.technique
    workers = plan.training_workers
    codecs = (technique.codec_tier1, technique.codec_tier2)
    contribution = sync_setup.contribution_of(plan)
    site = [worker.name for worker in workers if worker.data_center == node.data_center]
    return ScriptJob(
        rank=[worker.name for worker in workers].index(node.name),
        workers=len(workers),
        site_rank=site.index(node.name),
        site_workers=len(site),
        rounds=plan.training.rounds,
        contribution=str(contribution),
        at_server=contribution is Contribution.GRADIENT and not sync_setup.all_wait(plan),
        weight=contribution_weight(plan, node),
        local_steps=sync_setup.local_steps(plan)(0),
        differences="difference" in [pull_of(each.kind, each.options) for each in codecs],
        own_codec=_why_no_codec_of_its_own(plan),
        memory=any(CODECS[each.kind].has_memory for each in codecs),
        checkpoints=plan.checkpoint_every > 0,
        continues=plan.recovery.on_failure == "continue",
        all_keys=any(OVERLAYS[each.kind].relays for each in (technique.overlay_tier1, technique.overlay_tier2)),
        on_nan=plan.recovery.on_nan,
        no_clip_norm=_why_servers_do_not_clip(plan),
        sync=" and ".join(dict.fromkeys((technique.sync_tier1.kind, technique.sync_tier2.kind))),
    )


def _why_servers_do_not_clip(plan: Plan) -> str:
    """Return why servers cannot clip by the norm of all parameters, as the rule for scenarios without scripts does."""
    if len(plan.with_role("global_server")) > 1:
        return "each of several global servers has only a part of the parameters; write 'global_servers: 1'"
    if plan.with_role("server") and not SYNC[plan.technique.sync_tier1.kind].waits:
        return "gradients of several workers go up as one sum; write 'sync: mixedsync', or 'paradigm: ps'"
    if plan.recovery.on_failure == "continue":
        return "the gradient of a lost worker may arrive in part; write 'on_failure: restart'"
    return ""


def _why_no_codec_of_its_own(plan: Plan) -> str:
    technique = plan.technique
    if technique.codec_tier2.kind != CODECS.default:
        return f"the scenario says 'codec: {technique.codec_tier2.kind}' already"
    if ORDERS[technique.order.kind].best_effort or OVERLAYS[technique.overlay_tier2.kind].relays:
        return f"with '{technique.order.kind}' and '{technique.overlay_tier2.kind}' write it as 'codec' in the scenario"
    if sync_setup.contribution_of(plan) is not Contribution.GRADIENT:
        return f"with '{technique.sync_tier1.kind}' models travel, not gradients; write it as 'codec' in the scenario"
    return ""
