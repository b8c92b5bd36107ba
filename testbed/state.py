"""What a checkpoint keeps of a part of a node: content by name, and how the states of parts are joined to one.

A state is flat: names are paths, such as ``codec/memory/3/unsent``, contents tensors, numbers and texts. Whatever a
technique remembers from round to round it gives in ``state`` and takes back in ``load_state``; so no other part needs
to know which techniques remember something.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

State = dict[str, Any]


class Stateful(Protocol):
    """A part of a node that a checkpoint keeps."""

    def state(self) -> State:
        """Return all that the next round depends on. Later rounds do not change it."""

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take the place of the part that ``state`` is of."""


class Memoryless:
    """A part that remembers nothing."""

    def state(self) -> State:
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        pass


def under(prefix: str, state: Mapping[str, Any]) -> State:
    """Return the same state with ``prefix/`` before every name."""
    return {f"{prefix}/{name}": content for name, content in state.items()}


def below(prefix: str, state: Mapping[str, Any]) -> State:
    """Return the part of ``state`` below ``prefix``, by the names that ``under`` was given."""
    start = f"{prefix}/"
    return {name.removeprefix(start): content for name, content in state.items() if name.startswith(start)}


def by_key(state: Mapping[str, Any]) -> dict[int, State]:
    """Return the states of all keys in a state whose names begin with ``KEY/``."""
    states: dict[int, State] = {}
    for name, content in state.items():
        key, rest = name.split("/", 1)
        states.setdefault(int(key), {})[rest] = content
    return states


def joined(parts: Mapping[str, Stateful]) -> State:
    """Return the states of all parts, each under its name."""
    return {name: content for key, part in parts.items() for name, content in under(key, part.state()).items()}


def take_over(parts: Mapping[str, Stateful], state: Mapping[str, Any]) -> None:
    """Inverse of ``joined``: let every part load its state."""
    for key, part in parts.items():
        part.load_state(below(key, state))


def state_of(part: object, names: Iterable[str]) -> State:
    """Return the numbers that are ``part``'s attributes of these names. Infinite ones are texts, as JSON has none."""
    values = {name: getattr(part, name) for name in names}
    return {name: value if math.isfinite(value) else str(value) for name, value in values.items()}


def load_state(part: object, names: Iterable[str], state: Mapping[str, Any]) -> None:
    """Inverse of ``state_of``."""
    for name in names:
        value = state[name]
        setattr(part, name, float(value) if isinstance(value, str) else value)
