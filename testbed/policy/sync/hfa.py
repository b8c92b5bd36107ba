"""HFA, hierarchical frequency aggregation: local steps inside, rarer rounds across.

Liu et al., Client-edge-cloud hierarchical federated learning, ICC 2020; GeoMX. Workers train alone for K1 steps, then
their data centre averages their models; every K2-th such round the data centres' means are averaged over the WAN.

| paper | here |
|---|---|
| κ1, K1 | ``k1``: local steps between two pushes |
| κ2, K2 | ``k2``: LAN rounds between two WAN rounds |

A codec that sends only a part of a tensor gets the change since the last milestone, as in GeoMX (``codec.changes``);
with other codecs, whole models travel, which has the same sum. Unlike in GeoMX, the global tier holds the model itself,
and all keys cross the WAN in the same round, because the number of the round decides, not a counter per key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from testbed.axes import option
from testbed.policy.events import Aggregate, Contribution
from testbed.policy.sync.base import FIRST, SECOND, WEIGHTS, Tier
from testbed.policy.sync.fsa import Fsa
from testbed.preset import Preset


class Hfa(Fsa):
    """Average models inside a data centre in every round, and over the WAN in every ``k2``-th."""

    contribution: ClassVar[Contribution] = Contribution.MODEL
    spans_tiers: ClassVar[bool] = True
    presets: ClassVar[tuple[Preset, ...]] = (
        Preset(
            name="hfa",
            summary="workers make five local steps; every fourth mean of their models crosses the WAN",
            source="GeoMX; Liu et al., ICC 2020",
            settings={"sync": {"k1": 5, "k2": 4}},
        ),
    )

    @dataclass(frozen=True, slots=True)
    class Options:
        """How often members push, and ``weights``: what each of them counts for in a mean."""

        k1: int = option(20, "local steps between two pushes", min=1, max=10**6)
        k2: int = option(10, "LAN rounds between two WAN rounds", min=1, max=10**6)
        weights: str = option("party", **WEIGHTS)
        first_moments: int = option(0, **FIRST)
        second_moments: int = option(0, **SECOND)

    def __init__(self, tier: Tier, options: Options) -> None:
        super().__init__(tier, options)
        self._k2 = options.k2

    @classmethod
    def local_steps(cls, options: Options, round_: int) -> int:
        return options.k1

    @classmethod
    def lan_rounds(cls, options: Options) -> int:
        return options.k2

    def combine(self, key: int, round_: int, members: tuple[str, ...]) -> Sequence[Aggregate]:
        return (Aggregate(key, round_, members, up=(round_ + 1) % self._k2 == 0),)
