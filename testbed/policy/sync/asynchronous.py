"""Asynchronous algorithms: every push is applied and answered on arrival.

MixedSync (GeoMX): the WAN tier works so, while inside a data centre workers stay synchronous. TAP, totally
asynchronous parallel: every tier does (asynchronous SGD; Recht et al., Hogwild, NIPS 2011; Dean et al., NIPS 2012).
Staleness is not bounded; in steady state it is the number of other members on the mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from testbed.policy.events import Aggregate, Effect, Push, Reply
from testbed.policy.sync.base import SyncPolicy, Tier


class Tap(SyncPolicy):
    """Totally asynchronous."""

    waits: ClassVar[bool] = False

    def __init__(self, tier: Tier, options: Any) -> None:
        """Nothing depends on the others."""

    def on_push(self, push: Push) -> list[Effect]:
        return [Aggregate(push.key, push.round, (push.member,)), Reply(push.key, (push.round,), (push.member,))]

    def regroup(self, first: Mapping[str, int]) -> list[Effect]:
        return []

    def waiting_for(self, key: int, round_: int) -> tuple[str, ...]:
        return ()


class MixedSync(Tap):
    """Asynchronous between data centres; inside them FSA."""

    tiers: ClassVar[tuple[int, ...]] = (2,)
    partner: ClassVar[str] = "fsa"
