"""Techniques that break a requirement on purpose, and right ones that some of them derive from; by axis.

``test_broken.py`` says which requirement each of them breaks.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from analysis.studies.study import Panel, Study
from testbed.aggregation.base import AggregationRule
from testbed.codec.base import Codec, part
from testbed.codec.context import CodecContext
from testbed.codec.errors import check_finite
from testbed.policy.events import Contribution, Effect, Push, Reply
from testbed.policy.order.fifo import Fifo
from testbed.policy.overlay.base import ROOT, GroupSetting
from testbed.policy.overlay.netstorm import NetStorm
from testbed.policy.overlay.parents import Parents
from testbed.policy.overlay.tree import Tree
from testbed.policy.overlay.tsengine import TsEngine
from testbed.policy.pipeline.base import PipelineShape, Tasks
from testbed.policy.pipeline.gpipe import GPipe
from testbed.policy.pipeline.one_f_one_b import OneFOneB
from testbed.policy.pipeline.placement import Ground, InOrder
from testbed.policy.shard.hashed import Hashed
from testbed.policy.shard.slices import Slice
from testbed.policy.sync.base import Tier
from testbed.policy.sync.esync import ESync
from testbed.policy.sync.fsa import Fsa
from testbed.training.datasets.base import Dataset, DataSource
from testbed.training.models.base import Model
from testbed.training.optimizers.base import KeyStep
from testbed.training.options.optimizers import OptimizerOptions
from testbed.training.splits.base import Split
from topologies.text_file import TextFile
from topologies.traces.formats.base import TraceFormat
from topologies.traces.model import Reading, Trace


@dataclass(frozen=True, slots=True)
class NoOptions:
    """No options."""


Parts = tuple[Tensor, ...]


class Forgets:
    """Nothing is in a checkpoint."""

    def state(self) -> dict[str, Any]:
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        pass


# ---- sync -----------------------------------------------------------------------------------------------------------


class AnswersTwice(Fsa):
    """The first member of every round is answered twice."""

    def on_push(self, push: Push) -> list[Effect]:
        effects = super().on_push(push)
        replies: list[Any] = [effect for effect in effects if isinstance(effect, Reply)]
        return [*effects, *(Reply(each.key, each.rounds[:1], each.members[:1]) for each in replies)]


class UndeclaredSteps(Fsa):
    """Replies assign local steps."""

    contribution = Contribution.MODEL

    def __init__(self, tier: Tier, options: Any) -> None:
        super().__init__(tier, options)
        self._workers = [worker.name for member in tier.members for worker in member.workers]

    def steps(self) -> Mapping[str, int]:
        return dict.fromkeys(self._workers, 3)


class SharedState(Fsa):
    """All servers of a process know the rounds of all."""

    _rounds: ClassVar[dict[Tier, dict[str, Any]]] = {}

    def __init__(self, tier: Tier, options: Any) -> None:
        super().__init__(tier, options)
        self.__dict__ = self._rounds.setdefault(tier, self.__dict__)


class WaitsForTheLost(Fsa):
    def regroup(self, first: Mapping[str, int]) -> list[Effect]:
        return super().regroup({**self._first, **first})


class CountsCalls(Fsa):
    """Local steps depend on how often they were asked for."""

    contribution = Contribution.MODEL
    _calls: ClassVar[list[int]] = []

    @classmethod
    def local_steps(cls, options: Any, round_: int) -> int:
        cls._calls.append(round_)
        return 1 + len(cls._calls) // 10


class ForgetsReports(Forgets, ESync):
    """After a checkpoint, one report of a worker counts in place of three."""


# ---- codec ----------------------------------------------------------------------------------------------------------


class Plain(Codec):
    """float32 as it is: right, for others to derive from."""

    size_only = True
    Options = NoOptions

    def __init__(self, options: NoOptions, context: CodecContext) -> None:
        self._memory: dict[int, Tensor] = {}

    def encode(self, wire_key: int, tensor: Tensor) -> Parts:
        return (tensor.contiguous(),)

    def decode(self, wire_key: int, parts: Parts, size: int) -> Tensor:
        return part(parts, torch.float32, size)

    def state(self) -> dict[str, Any]:
        return {str(key): memory.clone() for key, memory in self._memory.items()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._memory = {int(key): memory.clone() for key, memory in state.items()}


class WrongSize(Plain):
    """Payloads are four bytes larger than on the meta device."""

    def encode(self, wire_key: int, tensor: Tensor) -> Parts:
        return super().encode(wire_key, tensor[1:] if tensor.is_meta else tensor)


class MutatesItsInput(Plain):
    """The tensor is clipped in place."""

    def encode(self, wire_key: int, tensor: Tensor) -> Parts:
        return (tensor.clamp_(-1, 1),)


class NotDeterministic(Plain):
    """Rounding draws from torch's own random numbers."""

    def encode(self, wire_key: int, tensor: Tensor) -> Parts:
        return (tensor if tensor.is_meta else torch.floor(tensor + torch.rand(tensor.shape)) * (tensor != 0),)


class SharesAStream(Plain):
    """Rounding draws from one stream for all keys."""

    def __init__(self, options: NoOptions, context: CodecContext) -> None:
        super().__init__(options, context)
        self._draws = torch.Generator().manual_seed(context.seed)

    def encode(self, wire_key: int, tensor: Tensor) -> Parts:
        up = torch.rand(tensor.shape, generator=self._draws)
        return (tensor if tensor.is_meta else torch.floor(tensor + up) * (tensor != 0),)


class NotElementwise(Plain):
    """Each element is rounded to a multiple of the largest one."""

    elementwise = True

    def encode(self, wire_key: int, tensor: Tensor) -> Parts:
        scale = tensor.abs().max() / 127
        return (tensor if tensor.is_meta else (tensor / scale).round() * scale,)


class Scaled(Plain):
    """float16: right, for others to derive from."""

    factor = 1.0

    def encode(self, wire_key: int, tensor: Tensor) -> Parts:
        return (tensor.to(torch.float16),)

    def decode(self, wire_key: int, parts: Parts, size: int) -> Tensor:
        return self.factor * part(parts, torch.float16, size).to(torch.float32)


class WrongSign(Scaled):
    factor = -1.0


class Twofold(Scaled):
    factor = 2.0


class ZerosAsValues(Scaled):
    """Every worker's model becomes 0."""

    def decode_value(self, wire_key: int, parts: Parts, size: int) -> Tensor:
        return torch.zeros_like(part(parts, torch.float32, size))


class NotExact(Scaled):
    exact = True


class Signs(Plain):
    """Signs times the mean magnitude, as float32, with error feedback: right, for others to derive from."""

    has_memory = True
    kept = 1.0
    factor = 1.0

    def encode(self, wire_key: int, tensor: Tensor) -> Parts:
        if tensor.is_meta:
            return (tensor,)
        self._check(wire_key, tensor)
        wanted = tensor + self._memory.get(wire_key, torch.zeros(1))
        sent = wanted.sign() * wanted.abs().mean()
        self._memory[wire_key] = self.kept * (wanted - sent)
        return (self.factor * sent,)

    def _check(self, wire_key: int, tensor: Tensor) -> None:
        check_finite(wire_key, tensor)


class AddsToItsInput(Signs):
    """The residual is added in place, which changes nothing while there is none."""

    def encode(self, wire_key: int, tensor: Tensor) -> Parts:
        if wire_key in self._memory:
            tensor += self._memory.pop(wire_key)
        return super().encode(wire_key, tensor)


class LosesTheResidual(Signs):
    kept = 0.5


class SendsTwice(Signs):
    factor = 2.0


class Lazy(Signs):
    """Nothing is sent until what has come together is large, or has waited: right, for others to derive from."""

    size_only = False
    least = 1e-3
    most_skips = 8

    def __init__(self, options: NoOptions, context: CodecContext) -> None:
        super().__init__(options, context)
        self._skips: dict[int, int] = {}

    def encode(self, wire_key: int, tensor: Tensor) -> Parts:
        if tensor.is_meta:
            return (tensor,)
        self._check(wire_key, tensor)
        wanted = tensor + self._memory.get(wire_key, torch.zeros(1))
        skips = self._skips.get(wire_key, 0)
        waits = wanted.square().mean().sqrt() <= self.least and skips < self.most_skips
        self._memory[wire_key] = wanted if waits else torch.zeros_like(wanted)
        self._skips[wire_key] = skips + 1 if waits else 0
        return (torch.zeros(0),) if waits else (wanted,)

    def decode(self, wire_key: int, parts: Parts, size: int) -> Tensor:
        if [each.shape for each in parts] == [(0,)]:
            return torch.zeros(size)
        return part(parts, torch.float32, size)

    def state(self) -> dict[str, Any]:
        return super().state() | {f"skips/{key}": skips for key, skips in self._skips.items()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state({name: each for name, each in state.items() if not name.startswith("skips/")})
        self._skips = {int(name[6:]): each for name, each in state.items() if name.startswith("skips/")}


class LazyUndeclared(Lazy):
    has_memory = False


class EveryTenth(LazyUndeclared):
    """What it remembers is seen in the tenth payload alone."""

    least = 0.0

    def encode(self, wire_key: int, tensor: Tensor) -> Parts:
        self._skips[wire_key] = self._skips.get(wire_key, 0) + 1
        return (tensor * 2 if self._skips[wire_key] == 10 else tensor.contiguous(),)

    def state(self) -> dict[str, Any]:
        return {}


class CountsForItself(Plain):
    """What is in its state changes no payload."""

    def state(self) -> dict[str, Any]:
        return {"calls": self._calls}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._calls = state["calls"]

    def __init__(self, options: NoOptions, context: CodecContext) -> None:
        super().__init__(options, context)
        self._calls = 0

    def encode(self, wire_key: int, tensor: Tensor) -> Parts:
        self._calls += 1
        return super().encode(wire_key, tensor)


class ClaimsAMemory(Plain):
    has_memory = True


class ForgetsItsResidual(Forgets, Signs):
    """A run that is resumed begins with an empty one."""


class RemembersNaN(Signs):
    def _check(self, wire_key: int, tensor: Tensor) -> None:
        """Look at nothing."""


class Differences(Plain):
    """Values travel as float16 differences from what the child holds: right, for others to derive from."""

    has_memory = True
    _sent = 0

    def begin(self, wire_key: int, value: Tensor) -> None:
        self._memory[wire_key] = value.clone()

    def encode(self, wire_key: int, tensor: Tensor) -> Parts:
        check_finite(wire_key, tensor)
        return (tensor.contiguous(),)

    def encode_value(self, wire_key: int, value: Tensor) -> Parts:
        self._sent += 1
        if value.is_meta:
            return (torch.empty(value.numel(), dtype=torch.float16, device="meta"),)
        difference = (value - self._memory[wire_key]).to(torch.float16)
        self._memory[wire_key] = self._memory[wire_key] + difference
        return (difference,)

    def decode_value(self, wire_key: int, parts: Parts, size: int) -> Tensor:
        self._sent = -1  # none: this is the child's end
        difference = part(parts, torch.float16, size)
        if difference.is_meta:
            return torch.empty(size, device="meta")
        self._memory[wire_key] = self._memory.get(wire_key, torch.zeros(size)) + difference
        return self._memory[wire_key].clone()


class DoesNotFollow(Differences):
    """An end whose value another end has encoded still takes its child to hold the one before."""

    def value_state(self, wire_key: int, size: int) -> int:
        return self._sent

    def follow_value(self, wire_key: int, value: Tensor, parts: Parts) -> None:
        self._sent += 1


# ---- order and shard ------------------------------------------------------------------------------------------------


class ByChance(Fifo):
    """Priorities are drawn."""

    def priority(self, key: int) -> int:
        return int(torch.randint(1 << 30, ()))


class DropsASlice(Fifo):
    """The last slice of every cut is missing."""

    def cut(self, slices: Iterable[Slice]) -> tuple[Slice, ...]:
        return super().cut(slices)[:-1]


class LastFirst(GPipe):
    """The last stage begins with the last micro-batch."""

    def tasks(self, shape: PipelineShape) -> Tasks:
        *others, last = super().tasks(shape)
        half = shape.micro_batches
        return (*others, (*last[:half], *reversed(last[half:])))


class OtherEveryTime(GPipe):
    """Every other schedule is 1F1B."""

    def __init__(self, options: NoOptions) -> None:
        super().__init__(options)
        self._calls = 0

    def tasks(self, shape: PipelineShape) -> Tasks:
        self._calls += 1
        return super().tasks(shape) if self._calls % 2 else OneFOneB(self.options).tasks(shape)


class AllOnOne(InOrder):
    """All workers of a data centre have one stage."""

    def place(self, ground: Ground) -> dict[str, tuple[int, ...]]:
        return {site: (0,) * workers for site, workers in ground.sites}


class OtherPlaces(InOrder):
    """Every other placement is turned round."""

    def __init__(self, options: NoOptions) -> None:
        super().__init__(options)
        self._calls = 0

    def place(self, ground: Ground) -> dict[str, tuple[int, ...]]:
        self._calls += 1
        placed = super().place(ground)
        last = ground.stages - 1
        return placed if self._calls % 2 else {site: tuple(last - n for n in each) for site, each in placed.items()}


class Overlaps(Hashed):
    """The first slice and the one after it share an element."""

    def slices(self, sizes: tuple[int, ...], servers: int) -> tuple[Slice, ...]:
        first, *others = super().slices(sizes, servers)
        return replace(first, stop=first.stop + 1), *others


# ---- overlay --------------------------------------------------------------------------------------------------------


class FastestRelays(Tree):
    """The member with the fastest link to the root relays for all others, as soon as that was measured."""

    adapts = True

    def __init__(self, setting: GroupSetting, options: Any) -> None:
        self._members = len(setting.members)
        self._rates = dict.fromkeys(range(self._members), 1.0)

    def measured(self, source: int, target: int, bytes_per_s: float, round_: int) -> None:
        if target == ROOT:
            self._rates[source] = bytes_per_s

    def trees(self, elements: Mapping[int, int]) -> dict[int, Parents]:
        relay = max(self._rates, key=lambda rank: self._rates[rank])
        tree = Parents(tuple(ROOT if rank == relay else relay for rank in range(self._members)))
        return dict.fromkeys(elements, tree)


class ForgetsAChunk(FastestRelays):
    """The largest chunk has no tree."""

    def trees(self, elements: Mapping[int, int]) -> dict[int, Parents]:
        largest = max(elements, key=lambda chunk: elements[chunk])
        return {chunk: tree for chunk, tree in super().trees(elements).items() if chunk != largest}


class ForgetsItsTrees(Forgets, NetStorm):
    """After a checkpoint, the planned rates count."""


class ForgetsItsTransfers(Forgets, TsEngine):
    """After a checkpoint, it explores again."""


# ---- aggregation ----------------------------------------------------------------------------------------------------


class KeepsTheMembers(AggregationRule):
    """Of each member it keeps the sign."""

    def combine(self, values: Tensor, weights: Tensor, measured: Tensor | None) -> Tensor:
        return values.sign()


class AddsUp(AggregationRule):
    """The sum is no mean."""

    def combine(self, values: Tensor, weights: Tensor, measured: Tensor | None) -> Tensor:
        return values.sum(dim=0)


class AnyMember(AggregationRule):
    """One member, by chance."""

    def combine(self, values: Tensor, weights: Tensor, measured: Tensor | None) -> Tensor:
        return values[int(torch.randint(len(values), ()))].clone()


class LongestFirst(AggregationRule):
    """The member with the longest contribution, which depends on all elements."""

    by_element = True

    def combine(self, values: Tensor, weights: Tensor, measured: Tensor | None) -> Tensor:
        return values[int(values.norm(dim=1).argmax())].clone()


# ---- optimizer ------------------------------------------------------------------------------------------------------


class Steps(torch.optim.Optimizer):
    """w ← w − lr · direction(g)."""

    def __init__(self, value: Tensor, direction: Callable[[Tensor], Tensor], rate: float = 0.0) -> None:
        super().__init__([value], {"lr": 0.0})
        self._direction, self._rate = direction, rate

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for value in self.param_groups[0]["params"]:
            value.sub_(self._direction(value.grad), alpha=self._rate or self.param_groups[0]["lr"])


class ForgetsItsRate(KeyStep):
    """The step size is fixed when the optimizer is made."""

    class Options(OptimizerOptions):
        """Those of all optimizers."""

    @staticmethod
    def make(options: Any, value: Tensor) -> torch.optim.Optimizer:
        return Steps(value, lambda gradient: gradient, options.learning_rate)


class HidesItsState(ForgetsItsRate):
    """Momentum is kept outside the optimizer's state."""

    @staticmethod
    def make(options: Any, value: Tensor) -> torch.optim.Optimizer:
        momentum = torch.zeros_like(value)
        return Steps(value, lambda gradient: momentum.mul_(0.9).add_(gradient))


class Normalises(ForgetsItsRate):
    """The step has the length of the rate, so that slices need the norm of the whole tensor."""

    @staticmethod
    def make(options: Any, value: Tensor) -> torch.optim.Optimizer:
        return Steps(value, lambda gradient: gradient / (gradient.norm() + 1e-12))


class NormalisesWholes(Normalises):
    """The same, and declared: right."""

    whole_tensors = True


# ---- model, data and split ------------------------------------------------------------------------------------------


class WrongScores(Model):
    """One score too many."""

    Options = NoOptions
    more_scores = 1

    @classmethod
    def layers(cls, size: int) -> list[nn.Module]:
        return []

    @classmethod
    def build(cls, options: NoOptions, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        size = prod(input_shape)
        return nn.Sequential(nn.Flatten(), *cls.layers(size), nn.Linear(size, classes + cls.more_scores))


class WithBuffers(WrongScores):
    """Batch normalisation has running means."""

    more_scores = 0

    @classmethod
    def layers(cls, size: int) -> list[nn.Module]:
        return [nn.BatchNorm1d(size)]


class WithDropout(WrongScores):
    """Dropout draws from torch's own random numbers."""

    more_scores = 0

    @classmethod
    def layers(cls, size: int) -> list[nn.Module]:
        return [nn.Dropout(0.5)]


class NoiseAsData(DataSource):
    """Samples come from torch's own random numbers."""

    Options = NoOptions

    @staticmethod
    def load(options: NoOptions, seed: int) -> Dataset:
        inputs, labels = torch.randn(256, 1, 8, 8), torch.arange(256) % 10
        return Dataset(inputs[:200], labels[:200], inputs[200:], labels[200:], 10)


class Twice(Split):
    """Neighbouring workers share a sample."""

    Options = NoOptions

    @staticmethod
    def cut(options: NoOptions, labels: Tensor, seed: int, workers: int) -> list[Tensor]:
        size = len(labels) // workers
        return [torch.arange(rank * size, min((rank + 1) * size + 1, len(labels))) for rank in range(workers)]


# ---- topology, trace and figure -------------------------------------------------------------------------------------


class RefusesItsSample(TraceFormat):
    sample = "4\n8\n"

    @staticmethod
    def parse(file: TextFile, reading: Reading) -> Trace:
        file.refuse(1, "expected a rate in kbit/s", "e.g. 4000")


_BYTES = Study("Bytes over the WAN", "an example", "quickstart.yaml", {"none": {}})
WITHOUT_PANELS = _BYTES
UNKNOWN_CODEC = Study(
    _BYTES.title,
    _BYTES.source,
    _BYTES.scenario,
    {"none": {}, "fp15": {"codec": "fp15"}},
    panels=(Panel("Bytes", "wan_bytes", kind="bar"),),
)
