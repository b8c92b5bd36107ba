"""A user's script as a worker: it runs in a thread of its own, and stands still while its node does what it asked for.

The node lets the script run until its next call (``World.compute`` of kind ``script``: so exactly one of the two runs
at any time, in both worlds), carries the call out, and lets it go on with the answer. A training step then takes what
the worker's device takes, counted from where the script began to compute. So the script needs to know of no world, and
in virtual time the order of everything is the simulator's.

Scripts share a process in the virtual world, so each has random generators of its own (torch, numpy, ``random``), which
are put in place while it runs.
"""

from __future__ import annotations

import random
import sys
import threading
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import torch
from torch import Tensor

from testbed.engine.kvworker import KVWorker, ReplyControl, merged
from testbed.engine.membership import Membership
from testbed.errors import RunFailed
from testbed.kvstore import enter
from testbed.kvstore import requests as api
from testbed.training.seeds import seed_for
from testbed.world import Work, World

_END_S = 5.0
_TURN = threading.Lock()  # one script of a process at a time, as they share the generators


class _Abandoned(BaseException):
    """The run is over, and the script has not ended."""


class ScriptThread:
    """Runs a file as ``__main__``; it and whoever calls ``resume`` take turns."""

    def __init__(self, path: Path, job: api.ScriptJob, seed: int) -> None:
        self.job, self._path = job, path
        self._requests: SimpleQueue[Any] = SimpleQueue()
        self._answers: SimpleQueue[Any] = SimpleQueue()
        self._generators = _seeded(seed)
        self._thread = threading.Thread(target=self._run, name=f"script {path.name}", daemon=True)
        self._thread.start()
        self.ended = False

    def resume(self, answer: Any) -> Any:
        """Let the script go on with ``answer``; returns its next request, or None at its end. Raises its error."""
        with _TURN:
            mine, before = self._generators, _generators()
            _put(mine)
            self._answers.put(answer)
            request = self._requests.get()
            self._generators = _generators()
            _put(before)
        self.ended = request is None or isinstance(request, BaseException)
        if isinstance(request, BaseException):
            raise RunFailed(self._explained(request)) from request
        return request

    def ask(self, request: Any) -> Any:
        """In the script's thread: hand over, and wait."""
        self._requests.put(request)
        return self._take()

    def abandon(self) -> None:
        """End the thread, wherever it stands."""
        if not self.ended:
            self._answers.put(_Abandoned())
            self._thread.join(_END_S)

    def _take(self) -> Any:
        answer = self._answers.get()
        if isinstance(answer, _Abandoned):
            raise answer
        return answer

    def _run(self) -> None:
        end: BaseException | None = None
        try:
            self._take()
            torch.set_num_threads(1)
            enter(self)
            code = compile(self._path.read_text(encoding="utf-8"), str(self._path), "exec")
            exec(code, {"__name__": "__main__", "__file__": str(self._path), "__builtins__": __builtins__})
        except _Abandoned:
            return
        except SystemExit as exit_:
            end = exit_ if exit_.code not in (None, 0) else None
        except BaseException as error:
            end = error
        self._requests.put(end)

    def _explained(self, error: BaseException) -> str:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(self._path)]
        line = f" line {frames[-1].lineno}" if frames else ""
        return f"{self._path.name}{line}: {type(error).__name__}: {error}"


def _generators() -> tuple[Any, ...]:
    return torch.get_rng_state(), np.random.get_state(), random.getstate()


def _put(states: tuple[Any, ...]) -> None:
    torch.set_rng_state(states[0])
    np.random.set_state(states[1])
    random.setstate(states[2])


def _seeded(seed: int) -> tuple[Any, ...]:
    return (
        torch.Generator().manual_seed(seed).get_state(),
        np.random.RandomState(seed % 2**32).get_state(),
        random.Random(seed).getstate(),
    )


class ScriptWorker:
    """Carry out what a script asks for.

    rounds          at most, as the scenario plans them
    declared_steps  local steps of a round, where no reply has assigned any
    """

    def __init__(
        self, world: World, membership: Membership, store: KVWorker, job: api.ScriptJob, rounds: int,
        declared_steps: Callable[[int], int],
    ) -> None:  # fmt: skip
        self._world, self._membership, self._store, self._job = world, membership, store, job
        self._planned_rounds, self._declared_steps = rounds, declared_steps
        self._assigned_steps = 0
        self._began_s, self._untimed_s = world.now(), 0.0
        self._round_began_s = world.now()
        self._rounds: dict[int, int] = {}  # next round of each key
        self._charged = 0  # steps whose time has passed
        self._barriers = self.rounds = 0
        self.values: list[Tensor] = []
        self._held: Callable[[], list[Tensor]] | None = None

    async def run(self, thread: ScriptThread) -> None:
        """Until the script ends."""
        answer: Any = None
        try:
            while True:
                request = await self._world.compute(Work("script", self.rounds), partial(thread.resume, answer))
                if request is None:
                    self.values = self._held() if self._held else self.values
                    return
                answer = await _HANDLERS[type(request)](self, request)
        finally:
            thread.abandon()

    async def begin(self, request: api.BeginRequest) -> list[Tensor]:
        await self._store.declare([value.numel() for value in request.values], request.compression)
        if self._job.rank == 0:
            notes = {"optimizer": list(request.optimizer)} if request.optimizer else None
            for key, value in enumerate(request.values):
                await self._store.init(key, value, notes)
        self.values = await self._store.pull(range(len(request.values)))
        await self._membership.barrier("train", self._job.workers)
        if self._job.rank == 0:
            self._world.record("train", rounds=self._planned_rounds, workers=self._job.workers)
        self._restart()
        self._round_began_s = self._world.now()
        return [value.clone() for value in self.values]

    async def push(self, request: api.PushRequest) -> int:
        round_ = self._rounds.get(request.key, 0)
        self._rounds[request.key] = round_ + 1
        if round_ >= self._charged:
            await self._step(round_)
        await self._store.push(request.key, round_, request.tensor, None, request.priority)
        return round_

    async def await_(self, request: api.AwaitRequest) -> Tensor:
        if request.round >= 0:
            self.values[request.key] = (await self._store.value(request.key, request.round)).tensor
            self._note_round(request.key, request.round)
        self._restart()
        return self.values[request.key].clone()

    async def exchange(self, request: api.ExchangeRequest) -> tuple[list[Tensor], int]:
        round_, keys = self.rounds, range(len(request.tensors))
        await self._step(round_)
        for key in keys:
            await self._store.push(key, round_, request.tensors[key])
        answers = [await self._store.value(key, round_) for key in keys]
        self.values = [answer.tensor for answer in answers]
        advice = merged([answer.advice for answer in answers])
        self._end_round(round_, request.steps, advice)
        self._assigned_steps = advice.steps.get(self._world.node, self._assigned_steps)
        return [value.clone() for value in self.values], self._assigned_steps or self._declared_steps(self.rounds)

    async def holds(self, request: api.ParametersRequest) -> None:
        self._held = request.get

    async def step(self, request: api.StepRequest) -> None:
        await self._step(self.rounds)

    async def barrier(self, request: api.BarrierRequest) -> None:
        self._barriers += 1
        await self._membership.barrier(f"script {self._barriers}", self._job.workers)
        self._restart()

    async def untimed(self, request: api.UntimedRequest) -> None:
        if request.on:
            self._untimed_s = self._world.now()
        else:
            self._began_s += self._world.now() - self._untimed_s

    async def score(self, request: api.ScoreRequest) -> None:
        if self._job.rank == 0 and request.accuracy is not None:
            self._world.record(
                "evaluate", round=max(0, self.rounds - 1), accuracy=request.accuracy, loss=request.loss,
                snapshot_t=self._world.now(),
            )  # fmt: skip

    async def _step(self, round_: int) -> None:
        self._charged = max(self._charged, round_ + 1)
        await self._world.compute(Work("step", round_, began_s=self._began_s), lambda: None)
        self._restart()

    def _restart(self) -> None:
        self._began_s = self._world.now()

    def _note_round(self, key: int, round_: int) -> None:
        """Single pushes and pulls: a round is over when its last key is here."""
        if key == len(self.values) - 1 and round_ == self.rounds:
            self._end_round(round_, 1, ReplyControl())

    def _end_round(self, round_: int, steps: int, advice: ReplyControl) -> None:
        self._world.record(
            "round", t0=self._round_began_s, round=round_, loss=float("nan"), samples=0, steps=steps,
            waited_s=round(advice.waited_s, 6),
        )  # fmt: skip
        self.rounds = round_ + 1
        self._restart()
        self._round_began_s = self._world.now()


_HANDLERS: dict[type, Callable[[ScriptWorker, Any], Any]] = {
    api.BeginRequest: ScriptWorker.begin,
    api.PushRequest: ScriptWorker.push,
    api.AwaitRequest: ScriptWorker.await_,
    api.ExchangeRequest: ScriptWorker.exchange,
    api.ParametersRequest: ScriptWorker.holds,
    api.StepRequest: ScriptWorker.step,
    api.BarrierRequest: ScriptWorker.barrier,
    api.UntimedRequest: ScriptWorker.untimed,
    api.ScoreRequest: ScriptWorker.score,
}


def start(path: Path, job: api.ScriptJob, seed: int) -> ScriptThread:
    """A thread that waits for its first ``resume``. Modules beside the script can be imported by it."""
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    return ScriptThread(path, job, seed_for(seed, "script", job.rank))
