"""One worker's part in a training step that the stages of a replica make together, by the tasks of the schedule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from torch import Tensor

from testbed.codec.base import Codec
from testbed.engine import coding
from testbed.engine.guard import Guarded
from testbed.engine.local_work import OwnStep
from testbed.engine.pipeline.evaluation import StageEvaluation
from testbed.engine.pipeline.mail import PipelineMail
from testbed.key_shape import activation_shape
from testbed.messages import Message, MessageKind
from testbed.plan.pipeline import Shares
from testbed.policy.pipeline.base import BACKWARD, FORWARD, Task
from testbed.state import PartsByKey
from testbed.training.learner import Learner, StepResult
from testbed.training.stage import StageLearner
from testbed.world import Work, World


@dataclass(frozen=True, slots=True)
class StagePart:
    """The work of one stage of one replica.

    before, after  the workers that hold the parts of the model before and after those of this stage
    chunks         the number of parts that each stage holds
    tasks          the stage's tasks, in order
    shares         by chunk, the passes' shares of a whole step's time
    samples        the number of samples of each micro-batch
    splits         whether gradients of parameters are tasks of their own
    """

    stage: int
    stages: int
    before: str
    after: str
    chunks: int
    tasks: tuple[Task, ...]
    shares: tuple[Shares, ...]
    samples: tuple[int, ...]
    splits: bool

    def is_first(self, chunk: int) -> bool:
        return self.stage == 0 and chunk == 0

    def is_last(self, chunk: int) -> bool:
        return self.stage == self.stages - 1 and chunk == self.chunks - 1

    def key(self, micro_batch: int, chunk: int) -> int:
        """Return the number of a message from its micro-batch and the chunk that takes it."""
        return chunk * len(self.samples) + micro_batch


@dataclass(frozen=True, slots=True)
class Codecs:
    """The codecs of activations and their gradients, at this worker's ends of its connections.

    make      by kind of message, makes a codec for the messages of a named worker; ``None``: they travel as they are
    feedback  whether a codec adds its residual to the same micro-batch of the next step, although that has other
              samples; otherwise the residual is lost
    """

    make: dict[MessageKind, Callable[[str], Codec] | None]
    feedback: bool


class PipelinedStep(OwnStep):
    """Computes one task after another, each when its input is there. Results are sent while the next task runs."""

    remembers = ("_memories",)

    def __init__(
        self, world: World, mail: PipelineMail, part: StagePart, codecs: Codecs, scores: StageEvaluation
    ) -> None:
        self._world = world
        self._mail = mail
        self._part = part
        self._codecs = codecs
        self._scores = scores
        self._memories: PartsByKey[tuple[str, str], Codec] = PartsByKey()  # by kind and sender
        self._round = 0
        self._step = 0

    async def __call__(self, learner: Learner, world: World, round_: int, step: int) -> StepResult:
        stage = cast(StageLearner, learner.inner if isinstance(learner, Guarded) else learner)
        self._round = round_
        self._step = step
        await self._scores.begin_round(round_)
        stage.start(step)
        for task in self._part.tasks:
            if task.kind == FORWARD:
                await self._forward(stage, task)
            elif task.kind == BACKWARD:
                await self._backward(stage, task)
            else:
                share = self._part.shares[task.chunk].weights
                await self._compute(task, share, partial(stage.weights, task.micro_batch, task.chunk))
        result = stage.result()
        if isinstance(learner, Guarded):
            return StepResult(result.loss, result.samples, learner.checked(step, result.gradients))
        return result

    async def _forward(self, stage: StageLearner, task: Task) -> None:
        part = self._part
        activation = None
        if not part.is_first(task.chunk):
            activation = await self._receive(MessageKind.ACTIVATION, task, part.before)
        passing = partial(stage.forward, task.micro_batch, task.chunk, activation)
        made = await self._compute(task, part.shares[task.chunk].forward, passing)
        if not part.is_last(task.chunk):
            assert made is not None, "there is a part of the model after this one"
            chunk = task.chunk + 1 if part.stage == part.stages - 1 else task.chunk
            self._send(MessageKind.ACTIVATION, part.after, part.key(task.micro_batch, chunk), made)

    async def _backward(self, stage: StageLearner, task: Task) -> None:
        part = self._part
        gradient = None
        if not part.is_last(task.chunk):
            gradient = await self._receive(MessageKind.ACTIVATION_GRADIENT, task, part.after)
        passing = partial(stage.backward, task.micro_batch, task.chunk, gradient, weights=not part.splits)
        shares = part.shares[task.chunk]
        made = await self._compute(task, shares.backward - (shares.weights if part.splits else 0.0), passing)
        if not part.is_first(task.chunk):
            assert made is not None, "there is a part of the model before this one"
            chunk = task.chunk - 1 if part.stage == 0 else task.chunk
            self._send(MessageKind.ACTIVATION_GRADIENT, part.before, part.key(task.micro_batch, chunk), made)

    async def _compute(self, task: Task, share: float, passing: Callable[[], Tensor | None]) -> Tensor | None:
        """Compute a pass, which takes its share of the step's time."""
        samples = self._part.samples
        name = f"{task.kind} {task.micro_batch}" + (f" of chunk {task.chunk}" if self._part.chunks > 1 else "")
        share *= samples[task.micro_batch] / sum(samples)
        return await self._world.compute(Work("step", self._round, steps=share, part=name), passing)

    async def _receive(self, kind: MessageKind, task: Task, source: str) -> Tensor:
        key = self._part.key(task.micro_batch, task.chunk)
        what = f"the {kind} of micro-batch {task.micro_batch} of step {self._step} from {source}"
        message = await self._mail.take(kind, self._step, key, what)
        self._scores.ends = self._scores.ends or "last" in message.meta
        shape = message.meta.get("shape", ())
        codec = self._codec(kind, source, key, shape)
        if codec is None:
            return message.parts[0]
        flat = await coding.decode(self._world, codec, message, torch.Size(shape).numel())
        return flat.reshape(shape)

    def _codec(self, kind: MessageKind, sender: str, key: int, shape: Sequence[int]) -> Codec | None:
        """Return the codec of messages of ``sender``, and declare the tensor's shape to it if it needs that."""
        make = self._codecs.make[kind]
        if make is None:
            return None
        codec = self._memories.get((kind.value, sender)) or make(sender)
        if codec.by_shape:
            codec.declare(key, activation_shape(shape))
        if self._codecs.feedback:
            self._memories[kind.value, sender] = codec
        return codec

    def _send(self, kind: MessageKind, to: str, key: int, tensor: Tensor) -> None:
        """Send in a task of its own, so that neither a codec nor a full queue delays the next pass."""
        meta = {"step": self._step} | ({"last": True} if self._scores.ends else {})
        self._world.spawn(self._sending(Message(kind, key, self._round, meta), to, tensor), f"send the {kind} {key}")

    async def _sending(self, message: Message, to: str, tensor: Tensor) -> None:
        codec = self._codec(message.kind, self._world.node, message.key, tensor.shape)
        if codec is None:
            message.parts = (await coding.exact(self._world, tensor.contiguous()),)
        else:
            message.meta["shape"] = list(tensor.shape)
            flat = await coding.exact(self._world, tensor.float().flatten())
            message.parts = await coding.encode(self._world, codec, message.key, flat, message.round)
        if to == self._world.node:
            self._mail.put(message)
        else:
            await self._world.send(to, message)


def samples_of(batch_size: int, micro_batches: int) -> tuple[int, ...]:
    """Return the samples of each micro-batch, as ``torch.tensor_split`` has them."""
    more = batch_size % micro_batches
    return tuple(batch_size // micro_batches + (number < more) for number in range(micro_batches))


def keys_of_stage(keys: Sequence[range], chunks: Sequence[range]) -> list[int]:
    """Return the numbers in the whole model of a stage's keys, in its order. ``keys``: of each segment."""
    return [key for chunk in chunks for number in chunk for key in keys[number]]
