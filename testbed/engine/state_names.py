"""State for checkpoints is flat: values by name. A part's names lie below a prefix, as files in a folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def under(prefix: str, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same state with ``prefix/`` before every name."""
    return {f"{prefix}/{name}": content for name, content in state.items()}


def below(prefix: str, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of ``state`` below ``prefix``, by the names that ``under`` was given."""
    start = f"{prefix}/"
    return {name.removeprefix(start): content for name, content in state.items() if name.startswith(start)}
