"""The top tier: it holds the values and the optimizer. No other node has optimizer state of a server's keys."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from testbed import buffers
from testbed.costs import Cost
from testbed.devices.accelerator import CPU
from testbed.engine import sync_setup
from testbed.engine.aggregation import AggregatedPush
from testbed.engine.local_work import optimizer_work
from testbed.engine.reply import PULL_ROUND, ReplyControl, Value
from testbed.engine.upstream import Upstream
from testbed.kvstore.session import ScriptOptimizer
from testbed.plan.model import Plan
from testbed.policy.events import Contribution
from testbed.state import Remembering, below, under
from testbed.training.optimizers import KeyOptimizer, Norms, clip_factor, sum_of_squares
from testbed.training.options import MODELS
from testbed.training.options.declarations import SCRIPT
from testbed.world import Future, Work, World


class OverwriteUpdate(Remembering):
    """Takes the aggregate as the new value: a mean of models (HFA), or the sum for the workers' own optimizers."""

    cost: Cost | None = None  # nothing is computed
    clip_norm = 0.0  # there is no gradient to clip

    remembers = ("value",)

    def __init__(self, value: Tensor) -> None:
        self.value = value.clone()

    def step(self, total: Tensor, member: str | None = None) -> None:
        self.value = total

    def pulled(self, member: str, value: Tensor) -> None:
        pass

    def forget(self, member: str) -> None:
        pass


class OuterOfModels(KeyOptimizer):
    """An outer optimizer for means of models: its gradient is the current value minus the mean of the models."""

    def step(self, gradient: Tensor, member: str | None = None, norms: Norms | None = None) -> None:
        """``gradient``: the mean of models."""
        super().step(self.value - gradient.to(self.value.device), member, norms)


def parameter_state_maker(plan: Plan) -> Callable[[Tensor], ParameterState]:
    """Return the function that makes a key's state from its first value: an optimizer, or an overwriting update."""
    outer = sync_setup.outer_optimizer(plan)
    models = sync_setup.contribution_of(plan) is Contribution.MODEL
    if outer is not None:
        kind = OuterOfModels if models else KeyOptimizer
        return lambda value: kind(outer.kind, outer.options, value)
    optimizer = plan.technique.optimizer
    is_script = MODELS[plan.training.model.kind].takes == SCRIPT  # a script may name an optimizer with first values
    if is_script or models or optimizer.options.get("at") == "worker":
        return OverwriteUpdate
    return lambda value: KeyOptimizer(optimizer.kind, optimizer.options, value)


ParameterState = KeyOptimizer | OverwriteUpdate


class WholeGradients:
    """Computes the norm over the gradients of all keys, for ``clip_norm``: an update waits for all keys of its round.

    The squares are added in the order of the keys, so the factor has the same bits in whatever order the keys arrive.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._squares: dict[tuple[Any, ...], dict[int, float]] = {}
        self._factors: dict[tuple[Any, ...], Future[float]] = {}

    async def factor(
        self, whose: tuple[Any, ...], total: AggregatedPush, keys: int, limit: float, workers: float
    ) -> float:
        """Return the clipping factor of the gradient named ``whose``, once all its ``keys`` keys are here.

        limit    the largest norm of the workers' mean gradient that is not clipped
        workers  the number of workers whose gradients are summed
        """
        squares = self._squares.setdefault(whose, {})
        work = Work("copy", total.round, size_bytes=total.tensor.nbytes)
        squares[total.key] = await self._world.compute(work, lambda: sum_of_squares(total.tensor))
        factor = self._factors.setdefault(whose, self._world.future())
        if len(squares) == keys:
            del self._squares[whose], self._factors[whose]
            factor.set_result(clip_factor([squares[key] for key in sorted(squares)], limit, workers))
        return await self._world.wait(factor, f"the other keys of round {total.round}, for the norm of its gradient")


class RootStore(Upstream):
    """The values at the top tier and their optimizers.

    If members do not wait for each other, the optimizer learns which member made a contribution. The ``update`` event
    records its staleness: the number of the key's updates since the member was last sent the value. If the workers
    below a member do not wait for each other either, each push names the value at which it was computed (``base``,
    ``upstream.Bases``). The store keeps each such value's state until the member says that no worker has the value.

    waits    whether all members wait for each other, so that each contribution is computed at the newest values; a
             replica must be told this, as it does not know which values members are sent
    workers  by member: the number of workers whose gradients one push sums; an optimizer chosen by a script steps
             along the mean gradient of these workers, or along their sum (``ScriptOptimizer``)
    """

    is_top = True

    def __init__(
        self,
        world: World,
        make_state: Callable[[Tensor], ParameterState],
        device: torch.device = CPU,
        *,
        waits: bool = False,
        workers: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        self._world = world
        self._make_state = make_state
        self._device = device
        self._waits = waits
        self._workers = workers
        self._keys: dict[int, ParameterState] = {}
        self._chosen: dict[int, ScriptOptimizer] = {}  # by key
        self._means: set[int] = set()  # keys whose new value is always the aggregate itself, a mean
        self._initialised: dict[int, Future[None]] = {}
        self._versions: dict[int, int] = {}
        self._sent_versions: dict[tuple[int, str], int] = {}  # by key, and member or ``_holder``
        self._with_bases: set[str] = set()  # members whose pushes name the value at which they were computed
        self._wholes = WholeGradients(world)

    async def init(self, key: int, tensor: Tensor, notes: Mapping[str, Any]) -> None:
        assert key not in self._keys, f"key {key} was initialised twice"
        if "optimizer" in notes:
            self._chosen[key] = ScriptOptimizer(*notes["optimizer"])
        if notes.get("mean"):
            self._means.add(key)
        work = Work("copy", size_bytes=tensor.nbytes)
        self._keys[key] = await self._world.compute(work, lambda: self._made(key, tensor))
        self._versions[key] = 0
        self._first_value(key).set_result(None)

    def _made(self, key: int, value: Tensor) -> ParameterState:
        """Return the state of a key with first value ``value``, with the script's optimizer or else the Plan's."""
        if not value.is_meta:
            value = value.to(self._device)
        if key in self._means:
            return OverwriteUpdate(value)
        if key not in self._chosen:
            return self._make_state(value)
        return KeyOptimizer(self._chosen[key].kind, self._chosen[key].options, value)

    async def pull(self, key: int, newest: bool = False) -> Tensor:
        await self._world.wait(self._first_value(key), f"first value of key {key} from the master worker")
        value = self._keys[key].value
        return await self._world.compute(Work("copy", size_bytes=value.nbytes), value.clone)

    async def apply(self, total: AggregatedPush) -> Value:
        key = total.key
        state = self._keys[total.key]
        bases = total.notes.get("bases") or [[PULL_ROUND]] * len(total.members)
        self._with_bases.update(total.members if "bases" in total.notes else ())
        holders = [_holder(each, base) for each, (base, *_) in zip(total.members, bases, strict=True)]
        sender = holders[0] if len(holders) == 1 and not self._waits else None
        work = optimizer_work([state], total.round)
        no_gradient = bool(total.notes.get("no_gradient"))
        divisor = self._summed(total.members) if key in self._chosen and self._chosen[key].of_mean else 1.0
        factor = await self._clip_factor(total, state.clip_norm) if state.clip_norm else 1.0

        def step() -> Tensor:
            if not no_gradient or total.tensor.any():  # a codec may now send residuals of earlier gradients
                gradient = total.tensor if divisor == 1.0 else total.tensor / divisor
                state.step(gradient if factor == 1.0 else gradient * factor, sender)
            # an optimizer changes its value in place; an overwriting update leaves the previous value unchanged
            return state.value if isinstance(state, OverwriteUpdate) else buffers.clone(state.value)

        value = await self._world.compute(work, step)
        newest = self._versions[key]
        staleness = 0 if self._waits else max(newest - self._sent_versions.get((key, each), 0) for each in holders)
        self._versions[key] += 1
        self._world.record(
            "update",
            key=key,
            round=total.round,
            version=self._versions[key],
            contributors=list(total.members),
            member=total.members[0] if len(total.members) == 1 else None,
            staleness=staleness,
        )
        for member, (_, *forgotten) in zip(total.members, bases, strict=True):
            for round_ in forgotten:
                self._forget(key, _holder(member, round_))
        return Value(value, ReplyControl(last=bool(total.notes.get("last"))))

    async def _clip_factor(self, total: AggregatedPush, limit: float) -> float:
        whose = (total.round,) if self._waits else (total.round, *total.members)
        return await self._wholes.factor(whose, total, len(self._keys), limit, self._summed(total.members))

    def _summed(self, members: Sequence[str]) -> float:
        """Return the number of workers for which an aggregate stands: all of them, if members wait for each other."""
        return math.fsum(self._workers.values() if self._waits else (self._workers[each] for each in members))

    def on_value_sent(self, key: int, value: Tensor, member: str, round_: int) -> bool:
        holder = _holder(member, round_) if member in self._with_bases else member
        self._sent_versions[key, holder] = self._versions[key]
        self._keys[key].pulled(holder, value)
        return True

    def on_joined(self, member: str) -> None:
        """Drop the state kept for workers below the lost process that the new process of ``member`` replaces.

        It is not dropped earlier, when the old process is lost: pushes of that process may still reach ``apply``.
        """
        for key, holder in [each for each in self._sent_versions if each[1].startswith(f"{member}/")]:
            self._forget(key, holder)

    def _forget(self, key: int, holder: str) -> None:
        self._sent_versions.pop((key, holder), None)
        self._keys[key].forget(holder)

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = {f"version/{key}": version for key, version in self._versions.items()}
        state |= {f"seen/{key}/{member}": version for (key, member), version in self._sent_versions.items()}
        state |= {f"mean/{key}": 1 for key in self._means}
        state |= under("chosen", {str(key): json.dumps(astuple(choice)) for key, choice in self._chosen.items()})
        for key, content in self._keys.items():
            state |= under(f"key/{key}", content.state())
        return state

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._versions = {int(key): int(version) for key, version in below("version", state).items()}
        for name, version in below("seen", state).items():
            key, member = name.split("/", 1)
            self._sent_versions[int(key), member] = int(version)
        self._chosen = {int(key): ScriptOptimizer(*json.loads(text)) for key, text in below("chosen", state).items()}
        self._means = {int(key) for key in below("mean", state)}
        for number in self._versions:
            content = below(f"key/{number}", state)
            self._keys[number] = self._made(number, content["value"])
            self._keys[number].load_state(content)
            self._first_value(number).set_result(None)

    def values(self) -> list[Tensor]:
        return [self._keys[key].value for key in sorted(self._keys)]

    def _first_value(self, key: int) -> Future[None]:
        return self._initialised.setdefault(key, self._world.future())


def _holder(member: str, round_: int) -> str:
    """Return the name under which the store keeps the value that ``member`` was sent in reply to ``round_``."""
    return member if round_ == PULL_ROUND else f"{member}/{round_}"
