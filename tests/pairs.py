"""Parameters of tests: which pairs the default suite runs, where all of them would show the same thing many times."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def in_turn(names: Iterable[Any], kinds: Iterable[Any], shift: int = 0) -> list[Any]:
    """Return all pairs, of which the default suite has those of the first name, and of each other name one, in turn.

    ``shift``: the kind with which the turn begins. The other pairs run with ``-m slow``.
    """
    columns = list(kinds)
    return [
        pytest.param(name, kind, marks=() if row == 0 or (row + shift) % len(columns) == column else pytest.mark.slow)
        for row, name in enumerate(names)
        for column, kind in enumerate(columns)
    ]
