"""HALoS and Async-Local-SGD: each arriving change is an outer step at once; faster workers make more local steps.

Kim et al., HALoS: Hierarchical asynchronous local SGD over slow networks for geo-distributed LLM training, ICML 2025
(arXiv 2506.04531); Liu et al., Asynchronous local-SGD training for language modeling, 2024 (arXiv 2401.09135). Rules
and values are those of the authors' code.

| paper | here |
|---|---|
| a worker makes H steps, pushes Δ to its LPS (local parameter server), and goes on at once from the LPS' newest model | ``h``; every push is answered at once |
| LPS and GPS (the global server) step by delayed Nesterov on each arrival | ``local_…`` and ``outer_…``: step size, β, N |
| after K updates, unless its last push is still unanswered, the LPS sends its change since its last merge | ``updates`` |
| the LPS merges the GPS' answer: θ ← (1 − α) θ + α θ_global | ``merging`` |
| DyLU: a worker of speed v makes ⌈H v⌉ steps | v is measured, relative to the fastest worker of the same server; in the authors' code v is a constant, relative to a GPU of speed 1 |

The engine keeps the LPS' model (``engine.local_model``). With one tier, HALoS is Async-Local-SGD.
"""  # noqa: E501 - the table

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from testbed.axes import option
from testbed.policy.events import Aggregate, Contribution, Effect, Push, Reply
from testbed.policy.sync.base import LocalModel, SyncPolicy, Tier
from testbed.preset import Preset


class AsyncLocalSgd(SyncPolicy):
    """Asynchronous outer steps: every server applies each change, or passes it on, as soon as it arrives."""

    contribution: ClassVar[Contribution] = Contribution.DELTA
    waits: ClassVar[bool] = False
    averages: ClassVar[bool] = False
    needs_reports: ClassVar[bool] = True
    assigns_steps: ClassVar[bool] = True
    presets: ClassVar[tuple[Preset, ...]] = (
        Preset(
            name="async_local_sgd",
            summary="every worker's change is an outer step as it comes; slow workers make fewer steps",
            source="Liu et al., 2024",
            settings={"sync": {"h": 10}, "paradigm": {"kind": "ps"}},
        ),
    )

    @dataclass(frozen=True, slots=True)
    class Options:
        """Defaults are those of HALoS' code for its largest baseline, except ``h``."""

        h: int = option(32, "inner steps of the fastest worker between two pushes (H)", min=1, max=10**6)
        dynamic: bool = option(True, "slower workers make fewer steps, so that all take as long (DyLU)")
        outer_learning_rate: float = option(1.6, "step size of the global server", above=0, max=100)
        outer_momentum: float = option(0.9, "momentum of the global server (β)", min=0, max=0.9999)
        outer_buffer: int = option(32, "contributions to it from one change of its momentum to the next (N)", min=1)

        @property
        def fixed_steps(self) -> int:
            """The steps of every worker, where they do not follow from its speed; else 0."""
            return 0 if self.dynamic else self.h

    remembers = ("_step_s",)

    def __init__(self, tier: Tier, options: Any) -> None:
        self._options = options
        self._assigns = options.dynamic and not tier.steps_assigned_above
        workers = [worker for member in tier.members for worker in member.workers]
        self._step_s = {each.name: each.step_time_s for each in workers if each.step_time_s}

    @classmethod
    def local_steps(cls, options: Any, round_: int) -> int:
        return int(options.h)

    @classmethod
    def outer_optimizer(cls, options: Any) -> tuple[str, dict[str, Any]]:
        return delayed_nesterov(options.outer_learning_rate, options.outer_momentum, options.outer_buffer)

    def on_push(self, push: Push) -> list[Effect]:
        self._step_s |= {worker: report.step_s for worker, report in push.reports.items() if report.step_s > 0}
        steps = self.steps(push) if self._assigns else {}
        return [Aggregate(push.key, push.round, (push.member,)), Reply(push.key, (push.round,), (push.member,), steps)]

    def steps(self, push: Push) -> dict[str, int]:
        """Return the next local steps, H v / v_max rounded up, of each worker whose report came with the push."""
        fastest_s = min(self._step_s.values(), default=0.0)
        return {
            worker: max(1, math.ceil(self._options.h * fastest_s / self._step_s[worker] - 1e-6))
            for worker in push.reports
            if worker in self._step_s
        }

    def regroup(self, first: Mapping[str, int]) -> list[Effect]:
        return []

    def waiting_for(self, key: int, round_: int) -> tuple[str, ...]:
        return ()


class Halos(AsyncLocalSgd):
    """Local servers have models of their own, and merge the global model into them from time to time."""

    presets: ClassVar[tuple[Preset, ...]] = (
        Preset(
            name="halos",
            summary="workers wait for no one: local servers have models of their own, and merge the global one",
            source="Kim et al., ICML 2025",
            settings={"sync": {"h": 8, "updates": 8, "local_buffer": 4, "local_learning_rate": "0.8"}},
        ),
    )

    @dataclass(frozen=True, slots=True)
    class Options(AsyncLocalSgd.Options):
        """Defaults are those of the authors' code for Pythia-70M (a step size there is times the buffer, as here)."""

        h: int = option(8, "inner steps of a data centre's fastest worker between two pushes (H)", min=1, max=10**6)
        outer_learning_rate: float = option(0.3, "step size of the global server", above=0, max=100)
        outer_momentum: float = option(0.5, "momentum of the global server (β)", min=0, max=0.9999)
        outer_buffer: int = option(2, "contributions to it from one change of its momentum to the next (N)", min=1)
        local_learning_rate: float = option(3.2, "step size of a local server", above=0, max=100)
        local_momentum: float = option(0.9, "momentum of a local server", min=0, max=0.9999)
        local_buffer: int = option(16, "contributions to it from one change of its momentum to the next", min=1)
        updates: int = option(32, "updates of a local server from a merging to its next push (K)", min=1, max=10**6)
        merging: float = option(0.25, "share of the global model in a merging (α)", above=0, max=1)

    @classmethod
    def local_model(cls, options: Options) -> LocalModel:
        kind, values = delayed_nesterov(options.local_learning_rate, options.local_momentum, options.local_buffer)
        return LocalModel(kind, values, options.updates, options.merging)


def delayed_nesterov(learning_rate: float, momentum: float, buffer: int) -> tuple[str, dict[str, Any]]:
    return "delayed_nesterov", {"learning_rate": learning_rate, "momentum": momentum, "buffer": buffer}
