"""Decoupled DiLoCo merges fragments of the model without late learners, while all learners go on training.

Douillard et al., Decoupled DiLoCo for resilient distributed pre-training, 2026 (arXiv 2604.21428). Every h/P steps a
learner sends the next of P fragments, and takes the merged fragment τ steps later (``policy.sync.streaming``). Once K
contributions to a fragment p have arrived (the quorum), the syncer waits for more until the grace window ends, and
merges those that are there:

    w_m ← tokens · tokens/steps                          of learner m since it last received p (``weights: token``)
    Δ_p ← Σ w_m (Θ_p − θ_{m,p}) / Σ w_m;   Θ_p ← OuterOpt(Θ_p, Δ_p)
    slack ← τ t_step − (t_quorum + t_sync)               the grace window (``adaptive``)

t_quorum is how long a contribution has waited, t_sync the transfer time of fragments as its learner measures it. So
the window ends before any learner that has contributed would have to wait. A later contribution counts for the next
round of its fragment (``policy.sync.quorum``).

A learner is a worker here, or a data centre whose workers wait for each other; the syncer is the global server. Each
fragment has rounds of its own. A learner that waits for one fragment pushes no other, so the rounds of the other
fragments close without it.

Weights and merging are as in a collection of published formulas (junaidaliop/zij), the slack as in a summary of the
paper. The paper's radial-directional averaging is not implemented.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from testbed.axes import option
from testbed.policy.events import Contribution, Effect, Push
from testbed.policy.sync.base import SyncPolicy, Tier
from testbed.policy.sync.diloco import DiLoCo
from testbed.policy.sync.quorum import Quorum
from testbed.policy.sync.streaming import Streaming, steps_between
from testbed.preset import Preset


class DecoupledDiLoCo(SyncPolicy):
    """Quorum rounds of each fragment of the model separately."""

    contribution: ClassVar[Contribution] = Contribution.DELTA
    waits: ClassVar[bool] = False
    holds: ClassVar[bool] = True
    tiers: ClassVar[tuple[int, ...]] = (2,)
    pauses: ClassVar[bool] = False
    needs_reports: ClassVar[bool] = True
    partner: ClassVar[str] = "diloco"
    presets: ClassVar[tuple[Preset, ...]] = (
        Preset(
            name="decoupled_diloco",
            summary="as streaming_diloco, but a fragment waits for two data centres, and for others while it can",
            source="Douillard et al., 2026",
            settings={
                "sync": {
                    "h": 16,
                    "outer_learning_rate": "0.7",
                    "outer_momentum": "0.6",
                    "fragments": 4,
                    "overlap_steps": 3,
                    "adaptive": True,
                    "weights": "token",
                }
            },
        ),
    )

    @dataclass(frozen=True, slots=True)
    class Options(Quorum.Options):
        """The options of DiLoCo and of a quorum, and how fragments take turns."""

        fragments: int = option(1, "parts of the model that are merged in turns (P)", min=1, max=1000)
        overlap_steps: int = option(0, "inner steps that go on while a fragment is on its way (τ)", max=10**6)
        mixing: float = option(0.5, "share of a worker's own values when a fragment comes that late", max=0.9999)

        def problems(self) -> Iterator[tuple[str, str, str]]:
            """Yield the problems of these options that DiLoCo or a quorum would report."""
            streamed = DiLoCo.Options(
                h=self.h, fragments=self.fragments, overlap_steps=self.overlap_steps, mixing=self.mixing
            )
            yield from streamed.problems()
            yield from Quorum.Options.problems(self)

    def __init__(self, tier: Tier, options: Options) -> None:
        self._step_s: dict[str, float] = {}  # by member: the step time of its slowest worker
        self._sync_s: dict[str, float] = {}  # by member: the longest transfer of its workers
        self._fragments = [Fragment(tier, options, self) for _ in range(options.fragments)]
        self._of_key: dict[int, Fragment] = {}

    @classmethod
    def local_steps(cls, options: Options, round_: int) -> int:
        return steps_between(options.h, options.fragments, round_)

    @classmethod
    def streaming(cls, options: Options) -> Streaming | None:
        if options.fragments == 1 and options.overlap_steps == 0:
            return None
        return Streaming(options.fragments, options.overlap_steps, options.mixing)

    @classmethod
    def outer_optimizer(cls, options: Options) -> tuple[str, dict[str, Any]]:
        return Quorum.outer_optimizer(options)

    @classmethod
    def slack_s(cls, options: Options) -> float:
        return options.grace_s

    def slack_until_s(self, arrived_s: Mapping[str, float], steps: int) -> float:
        """Return until when the round may stay open without making a member that has contributed wait.

        arrived_s  when the contribution of each member arrived
        steps      local steps that a member makes after its contribution before it needs the fragment
        """
        return min(
            at_s + steps * self._step_s.get(member, 0.0) - self._sync_s.get(member, 0.0)
            for member, at_s in arrived_s.items()
        )

    def elsewhere(self, fragment: Fragment) -> set[str]:
        """Return the members that wait for other fragments."""
        return {member for other in self._fragments if other is not fragment for member in other.arrived_s}

    def on_push(self, push: Push) -> list[Effect]:
        fragment = self._of_key.setdefault(push.key, self._fragments[push.round % len(self._fragments)])
        if push.reports:
            self._step_s[push.member] = max(report.step_s for report in push.reports.values())
            self._sync_s[push.member] = max(each.transfer_s + each.delay_s for each in push.reports.values())
        before = fragment.arrived_s
        effects = fragment.on_push(push)
        return effects + (self._look(fragment, push.now_s) if fragment.arrived_s != before else [])

    def on_alarm(self, key: int, number: int, now_s: float) -> list[Effect]:
        return self._of_key[key].on_alarm(key, number, now_s)

    def on_members_left(self, members: Collection[str]) -> list[Effect]:
        return [effect for fragment in self._fragments for effect in fragment.on_members_left(members)]

    def regroup(self, first: Mapping[str, int]) -> list[Effect]:
        return [effect for fragment in self._fragments for effect in fragment.regroup(first)]

    def waiting_for(self, key: int, round_: int) -> tuple[str, ...]:
        return self._of_key[key].waiting_for(key, round_) if key in self._of_key else ()

    def _look(self, beside: Fragment, now_s: float) -> list[Effect]:
        """Look at the open rounds of all fragments but ``beside``: close those that no learner can still join."""
        others = [each for each in self._fragments if each is not beside and each.arrived_s]
        return [effect for each in others for effect in each.look(now_s)]


class Fragment(Quorum):
    """The rounds of one fragment."""

    def __init__(self, tier: Tier, options: DecoupledDiLoCo.Options, whole: DecoupledDiLoCo) -> None:
        super().__init__(tier, options)
        self._steps = options.overlap_steps
        self._whole = whole
        self._key = 0
        self._first_s: dict[str, float] = {}  # by member: when its latest contribution arrived

    @property
    def arrived_s(self) -> dict[str, float]:
        """The members that have contributed to the open round, and when each contribution arrived."""
        return {member: self._first_s[member] for member in self._open}

    def on_push(self, push: Push) -> list[Effect]:
        self._key = push.key
        if self._latest.get(push.member) != push.round:
            self._first_s[push.member] = push.now_s
        return super().on_push(push)

    def look(self, now_s: float, key: int = 0) -> list[Effect]:
        return super().look(now_s, self._key)

    def waits_until_s(self, now_s: float) -> float:
        return self._whole.slack_until_s(self.arrived_s, self._steps)

    def elsewhere(self) -> set[str]:
        return self._whole.elsewhere(self)
