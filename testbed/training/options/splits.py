"""Options of the splits of the training data over the workers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from testbed.axes import Axis, option


@dataclass(frozen=True, slots=True)
class Iid:
    """Shuffle once, then cut into equal contiguous shares, one per worker."""


@dataclass(frozen=True, slots=True)
class Contiguous:
    """Cut the data in its own order into equal shares: worker s of N gets samples s·⌊n/N⌋ to (s+1)·⌊n/N⌋ (GeoMX)."""


@dataclass(frozen=True, slots=True)
class ByClass:
    """Sort by class, then cut into equal contiguous shares (GeoMX's --split-by-class)."""


@dataclass(frozen=True, slots=True)
class Dirichlet:
    """Each class is dealt out in proportions drawn from Dirichlet(alpha) (Hsu et al., 2019; Li et al., 2022)."""

    alpha: float = option(0.5, "small: few classes per worker; large: alike", min=0.01, max=1e6)


@dataclass(frozen=True, slots=True)
class ByCount:
    """Shuffle once, then cut into shares of different sizes."""

    shares: str = option("", "one number per worker, e.g. '4 2 1 1'; proportional")
    skew: float = option(0.0, "without shares: worker r gets 1/(r+1)^skew of the first", min=0, max=10)

    def problems(self) -> Iterator[tuple[str, str, str]]:
        """Yield option, problem and cure."""
        if self.shares and self.skew:
            yield "skew", "has no effect beside 'shares'", "keep one of them"


SPLITS: Axis[Any] = Axis(
    "split",
    {
        "iid": Iid,
        "contiguous": Contiguous,
        "by_class": ByClass,
        "dirichlet": Dirichlet,
        "by_count": ByCount,
    },
    base="testbed.training.splits.base:Split",
)
