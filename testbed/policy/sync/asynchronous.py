"""Nobody waits: every push is applied and answered as it comes.

MixedSync (GeoMX): the WAN tier works so, while inside a data centre workers stay synchronous. TAP, totally
asynchronous parallel: every tier does (asynchronous SGD; Recht et al., Hogwild, NIPS 2011; Dean et al., NIPS 2012).
Staleness is not bounded; in steady state it is the number of other members on the mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from testbed.policy.events import Answer, Combine, Contribution, Effect, Push


class Tap:
    """Totally asynchronous."""

    contribution: ClassVar = Contribution.GRADIENT
    tiers: ClassVar[tuple[int, ...]] = (1, 2)

    @dataclass(frozen=True, slots=True)
    class Options:
        """TAP has no options."""

    def __init__(self, members: tuple[str, ...], options: Options) -> None:
        pass

    def on_push(self, push: Push) -> list[Effect]:
        return [Combine(push.key, push.round, (push.member,)), Answer(push.key, (push.round,), (push.member,))]

    def waiting_for(self, key: int, round_: int) -> tuple[str, ...]:
        return ()


class MixedSync(Tap):
    """Asynchronous between data centres; inside them FSA."""

    tiers: ClassVar[tuple[int, ...]] = (2,)
    partner: ClassVar = "fsa"  # what ``sync: mixedsync`` puts on tier 1
