"""What a simulated connection remembers between two bursts, for a run that is interrupted there and resumed."""

from __future__ import annotations

import math
from collections.abc import Iterable

from testbed.plan.instant import ConnectionState


def state_of(part: object, names: Iterable[str]) -> ConnectionState:
    """Return the numbers that are ``part``'s attributes of these names. Infinite ones are texts, as JSON has none."""
    values = {name: getattr(part, name) for name in names}
    return {name: value if math.isfinite(value) else str(value) for name, value in values.items()}


def load_state(part: object, names: Iterable[str], state: ConnectionState) -> None:
    """Inverse of ``state_of``."""
    for name in names:
        value = state[name]
        setattr(part, name, float(value) if isinstance(value, str) else value)
