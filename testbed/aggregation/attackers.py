"""The number of attackers that a rule expects."""

from __future__ import annotations

import math
from typing import Any

SHARE: dict[str, Any] = {"unit": "share", "max": 0.499}  # for the declaration of an option
_ROUNDING = 1e-9  # 0.29 · 100 is 28.999999999999996


def attackers(share: float, members: int) -> int:
    """Return the largest whole number that is at most ``share`` of the members."""
    return math.floor(share * members + _ROUNDING)
