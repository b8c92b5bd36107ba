"""DeCo-SGD chooses the staleness and the compression of gradients from the measured delay and rate.

Lu et al., DeCo-SGD: Joint optimization of delay staleness and gradient compression ratio for distributed SGD, 2025
(arXiv 2507.17346). Each worker goes on while the sums of the last τ rounds are on their way (delayed aggregation). It
sends the share δ of each gradient, with error feedback:

    Δ_t ← C_δ(e_t + g_t);   e_{t+1} ← e_t + g_t − Δ_t;   θ_{t+1} ← θ_t − γ mean Δ_{t−τ}

Staleness and compression together slow convergence by at least φ, which grows exponentially with τ. No worker waits if
a gradient is sent within the time of one step, and its sum arrives within τ steps. Let T be the time of a step, S/a the
time to transfer a whole gradient, and b the delay:

    φ(δ, τ) = (1 − δ) / (δ (1 − δ/2)^τ)
    δ(τ) = min(1, T a/S, (τ T − b) a/S);     τ = argmin φ(δ(τ), τ)

| paper | here |
|---|---|
| C_δ, with its error feedback | a codec that is ``adjustable``; with any other codec δ is 1, and only τ is chosen |
| the sum | codecs with ``pull: sparse-sum`` send it down as sparse as the contributions went up |
| b | the shortest time until the first value of a round arrived |
| S/a | the rest of a round's transfer, divided by δ, without waits for other workers or for the previous round |
| T, b, S/a of all | a worker's medians over its last rounds at the present pace; each is the largest of all workers |
| E | ``every``: rounds from one choice to the next |

The loop is as in a collection of published formulas (junaidaliop/zij). Of the paper, only the abstract could be read:
it says that staleness amplifies the harm of compression exponentially. A summary of it (Hiroki11x/Papers, 395) has
(1 − δ)^τ in φ. The (1 − δ/2)^τ used here and δ(τ) are from memory. With steps of 20 ms to 1 s, delays of 10 ms to 1 s
and gradients of 20 ms to 100 s both choose the same in 169 of 175 combinations, and in the others 1 in place of τ = 2.
``adaptive: false`` is delayed SGD with error feedback: τ stays as it is, and δ is the codec's.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from statistics import median_low
from typing import Any, ClassVar

from testbed.axes import option
from testbed.policy.events import Effect, Pace, Push, WorkerReport
from testbed.policy.sync.base import Tier
from testbed.policy.sync.fsa import Fsa
from testbed.preset import Preset
from testbed.state import State

RECENT = 5  # reports of a worker whose medians are used
ENOUGH = 3  # reports of every worker that a choice needs
LEAST_SHARE = 1e-4
LEAST_S = 1e-6  # the resolution of reports


class DeCo(Fsa):
    """Synchronous rounds in which each worker is some rounds ahead of the last answer that it has received."""

    spans_tiers: ClassVar[bool] = True
    needs_reports: ClassVar[bool] = True
    lags: ClassVar[bool] = True
    supports_failover: ClassVar[bool] = False  # reports that reached the lost server would be missing
    presets: ClassVar[tuple[Preset, ...]] = (
        Preset(
            name="deco_sgd",
            summary="gradients are late, and compressed, as far as the measured delay and rate make that necessary",
            source="Lu et al., 2025",
            settings={
                "sync": {},
                "codec": {"tier1": "none", "tier2": {"kind": "topk", "ratio": "0.05", "pull": "sparse-sum"}},
                "optimizer": {"kind": "adam", "beta1": 0},  # momentum would repeat what is sent once in a while
            },
            defining=("codec.tier2.kind",),
        ),
    )

    @dataclass(frozen=True, slots=True)
    class Options:
        """With ``adaptive: false`` τ stays as it is, and δ is the codec's own."""

        staleness: int = option(2, "rounds that a worker is ahead of its last answer, at first (τ)", max=1000)
        adaptive: bool = option(True, "choose τ, and the share of a gradient that is sent (δ), by what is measured")
        share: float = option(0.05, "share of a gradient that is sent until the first choice (δ)", above=0, max=1)
        every: int = option(20, "rounds from one choice to the next (E)", min=1, max=10**6)
        most: int = option(20, "largest τ that is chosen", min=1, max=1000)

    def __init__(self, tier: Tier, options: Options) -> None:
        super().__init__(tier, options)
        self._options = options
        self._adjustable = tier.adjustable
        self._chooses = options.adaptive and tier.top
        self._pace: Pace | None = None
        self._chosen_in = 0  # the round in which the pace was chosen
        self._fresh_from = 0  # pushes from this round on carry reports of rounds at that pace
        self._reports: dict[str, deque[WorkerReport]] = {}  # by worker, at that pace

    @classmethod
    def staleness(cls, options: Options) -> int:
        return options.staleness

    @classmethod
    def most_ahead(cls, options: Options) -> int:
        return max(options.staleness, options.most if options.adaptive else 0)

    def on_push(self, push: Push) -> list[Effect]:
        if push.reports and self._chooses and self._pace is None:
            share = self._options.share if self._adjustable else 1.0
            self._choose(push.round, Pace(self._options.staleness, share))
        for worker, report in push.reports.items():
            kept = self._reports.setdefault(worker, deque(maxlen=RECENT))
            if push.round >= self._fresh_from:
                kept.append(report)
        return super().on_push(push)

    def pace(self, round_: int) -> Pace | None:
        """Return the pace, chosen anew if that is due. Of several global servers, only the one with reports chooses."""
        if self._pace is not None and round_ - self._chosen_in >= self._options.every and self._all_told():
            step_s, transfer_s, delay_s = map(max, zip(*map(_medians, self._reports.values()), strict=True))
            whole_s = transfer_s / self._pace.share
            self._choose(round_, chosen(step_s, delay_s, whole_s, self._options.most, self._adjustable))
        return self._pace

    def _all_told(self) -> bool:
        """Return whether there are enough reports of every worker at the present pace."""
        return bool(self._reports) and all(len(kept) >= ENOUGH for kept in self._reports.values())

    def _choose(self, round_: int, pace: Pace) -> None:
        before = self._options.staleness if self._pace is None else self._pace.staleness
        self._pace = pace
        self._chosen_in = round_
        self._fresh_from = round_ + 2 + before + pace.staleness
        for kept in self._reports.values():
            kept.clear()

    def state(self) -> State:
        reports = {worker: [astuple(each) for each in kept] for worker, kept in self._reports.items()}
        pace = astuple(self._pace) if self._pace else None
        return {"measured": json.dumps([pace, self._chosen_in, self._fresh_from, reports])}

    def load_state(self, state: Mapping[str, Any]) -> None:
        pace, self._chosen_in, self._fresh_from, reports = json.loads(state["measured"])
        self._pace = Pace(*pace) if pace else None
        self._reports = {name: deque((WorkerReport(*each) for each in kept), RECENT) for name, kept in reports.items()}


def _medians(reports: Iterable[WorkerReport]) -> tuple[float, float, float]:
    step_s, transfer_s, delay_s = (median_low(each) for each in zip(*map(astuple, reports), strict=True))
    return step_s, transfer_s, delay_s


def chosen(step_s: float, delay_s: float, whole_s: float, most: int, adjustable: bool) -> Pace:
    """Return the τ up to ``most`` and its δ with the least φ; if every δ would be too small, ``most`` and the least δ.

    step_s, delay_s, whole_s  T, b and S/a of the module's docstring
    adjustable                whether δ can be chosen; otherwise it is 1
    """
    if not adjustable:
        needed = (delay_s + whole_s) / max(step_s, LEAST_S)
        return Pace(min(most, math.ceil(needed - 1e-9)), 1.0)
    whole_s = max(whole_s, LEAST_S)
    shares = {tau: min(1.0, step_s / whole_s, (tau * step_s - delay_s) / whole_s) for tau in range(1, most + 1)}
    enough = {tau: share for tau, share in shares.items() if share >= LEAST_SHARE}
    if not enough:
        return Pace(most, LEAST_SHARE)
    staleness = min(enough, key=lambda tau: (harm(enough[tau], tau), tau))
    return Pace(staleness, enough[staleness])


def harm(share: float, staleness: int) -> float:
    """Return φ(δ, τ)."""
    return (1 - share) / (share * (1 - share / 2) ** staleness)
