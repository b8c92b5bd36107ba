"""Asynchronous algorithms: every push is applied and answered on arrival.

MixedSync (GeoMX): the WAN tier is asynchronous, while the workers inside a data centre stay synchronous. TAP, totally
asynchronous parallel: every tier is asynchronous (asynchronous SGD; Recht et al., Hogwild, NIPS 2011; Dean et al., NIPS
2012). Staleness is not bounded; in steady state, its mean is the number of other members.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from testbed.policy.events import Aggregate, Effect, Push, Reply
from testbed.policy.sync.base import SyncPolicy, Tier
from testbed.preset import Preset


class Tap(SyncPolicy):
    """Totally asynchronous: every push is applied as it arrives, and nobody waits."""

    waits: ClassVar[bool] = False
    presets: ClassVar[tuple[Preset, ...]] = (
        Preset(
            name="tap",
            summary="one tier, and every push is applied as it comes: asynchronous SGD",
            source="Recht et al., NIPS 2011; Dean et al., NIPS 2012",
            settings={"sync": {}, "paradigm": {"kind": "ps"}},
        ),
    )

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
    presets: ClassVar[tuple[Preset, ...]] = (
        Preset(
            name="mixedsync",
            summary="data centres do not wait for each other, their workers do; DC-ASGD makes up for old gradients",
            source="GeoMX; Zheng et al., ICML 2017",
            settings={"sync": {}, "optimizer": {"kind": "dcasgd", "learning_rate": "0.05"}},
            defining=("optimizer.kind",),
        ),
    )
