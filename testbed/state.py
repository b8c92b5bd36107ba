"""What a checkpoint keeps of a part of a node: content by name, and how the states of parts are joined to one.

A state is flat: names are paths, such as ``codec/memory/3/unsent``, contents tensors, numbers and texts. Whatever a
technique remembers from round to round it gives in ``state`` and takes back in ``load_state``; so no other part needs
to know which techniques remember something.
"""

from __future__ import annotations

import math
from ast import literal_eval
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol, TypeGuard, TypeVar

State = dict[str, Any]


class Stateful(Protocol):
    """A part of a node that a checkpoint keeps."""

    def state(self) -> State:
        """Return all that the next round depends on. Later rounds do not change it."""

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take the place of the part that ``state`` is of."""


K = TypeVar("K")
P = TypeVar("P", bound=Stateful)


class Remembering:
    """A part whose state is in attributes that it declares; by default it has none.

    class Residuals(Remembering):
        remembers = ("_unsent", "_round")

        def __init__(self) -> None:
            self._unsent: dict[int, Tensor] = {}
            self._round = 0

    remembers  names of attributes, each a number, a text, a tensor or ``None``; a list or a mapping of tensors; a part
               with a state of its own, or a list or a mapping of parts, which stay (of parts that are made when they
               are needed: ``PartsByKey``); or any other container of plain values, as Python's literals have them
    """

    __slots__ = ()
    remembers: ClassVar[tuple[str, ...]] = ()

    def state(self) -> State:
        """Return all that the next round depends on. Later rounds do not change it."""
        state: State = {}
        for name in self.remembers:
            value = getattr(self, name)
            if value is not None:
                state |= _entries(name.lstrip("_"), value)
        return state

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take the place of the part that ``state`` is of; if it is empty, there was none, and nothing changes."""
        for name in self.remembers if state else ():
            value = getattr(self, name)
            public = name.lstrip("_")
            if parts := _parts_of(value):
                take_over({f"{public}{key}": part for key, part in parts.items()}, state)
            else:
                setattr(self, name, _loaded(public, value, state))


class PartsByKey(dict[K, P]):
    """Parts that are made when they are first needed. What a loaded state has of one that cannot be made yet waits.

    make  makes the part of a key; ``None``: who needs it makes it
    """

    def __init__(self, make: Callable[[K], P] | None = None) -> None:
        super().__init__()
        self._make = make
        self._waiting: dict[K, State] = {}

    def __missing__(self, key: K) -> P:
        if self._make is None:
            raise KeyError(key)
        self[key] = self._make(key)
        return self[key]

    def __setitem__(self, key: K, part: P) -> None:
        super().__setitem__(key, part)
        if key in self._waiting:
            part.load_state(self._waiting.pop(key))

    def state(self) -> State:
        """Return the states of all parts, those that wait included, below the place of each among the keys."""
        kept = self._waiting | {key: part.state() for key, part in self.items()}
        state: State = {"keys": _literal(list(kept))} if kept else {}
        for place, content in enumerate(kept.values()):
            state |= under(str(place), content)
        return state

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take the place of the parts that ``state`` is of; those that can be made are made."""
        for place, key in enumerate(literal_eval(state.get("keys", "[]"))):
            content = below(str(place), state)
            if key in self or self._make is not None:
                self[key].load_state(content)
            else:
                self._waiting[key] = content


def _parts_of(value: Any) -> dict[str, Stateful]:
    """Return the parts that ``value`` is or holds, each with the end of its name."""
    items = _items_of(value)
    if hasattr(value, "load_state"):
        return {"": value}
    return {f"/{key!r}": each for key, each in items.items() if hasattr(each, "load_state")}


def _is_tensor(value: Any) -> TypeGuard[Any]:
    """Return whether ``value`` is one of torch's, which decisions (``testbed.policy``) must not import."""
    return hasattr(value, "clone")


def _items_of(value: Any) -> dict[Any, Any]:
    if isinstance(value, list | tuple):
        return dict(enumerate(value))
    return value if isinstance(value, dict) else {}


def _entries(name: str, value: Any) -> State:
    if parts := _parts_of(value):
        return joined({f"{name}{key}": part for key, part in parts.items()})
    if _is_tensor(value):
        return {name: value.clone()}
    items = _items_of(value)
    if any(_is_tensor(each) for each in items.values()):
        return under(name, {repr(key): each.clone() for key, each in items.items()})
    plain = isinstance(value, int | str) or (isinstance(value, float) and math.isfinite(value))
    return {name: value if plain else _literal(value)}  # JSON has no word for infinity, either


def _literal(value: Any) -> str:
    """Return a container of plain values as Python's literal, which has no word for infinity or numpy's numbers."""
    if isinstance(value, float):
        assert not math.isnan(value), "no part remembers what is not a number"
        return repr(float(value)) if math.isfinite(value) else f"{math.copysign(1, value):.0f}e999"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_literal(key)}: {_literal(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_literal, value)) + "]"
    if isinstance(value, tuple):
        return "(" + "".join(f"{_literal(each)}, " for each in value) + ")"
    return repr(value)


def _loaded(name: str, before: Any, state: Mapping[str, Any]) -> Any:
    """Return the value of an attribute, of which ``before`` is the value now: it says what the state holds."""
    content = state.get(name)
    if _is_tensor(content):
        return _copy(content, before)
    if isinstance(before, float) and isinstance(content, str):
        return literal_eval(content)
    if not isinstance(before, list | dict | tuple | set):
        return content
    if content is not None:
        return literal_eval(content)
    near = next((each for each in _items_of(before).values() if _is_tensor(each)), None)
    tensors = {literal_eval(key): _copy(each, near) for key, each in below(name, state).items()}
    return list(tensors.values()) if isinstance(before, list) else tensors


def _copy(tensor: Any, near: Any) -> Any:
    """Return a copy of a tensor, on the device of another one if ``near`` is one."""
    return tensor.to(near.device if _is_tensor(near) else tensor.device, copy=True)


def under(prefix: str, state: Mapping[str, Any]) -> State:
    """Return the same state with ``prefix/`` before every name."""
    return {f"{prefix}/{name}": content for name, content in state.items()}


def below(prefix: str, state: Mapping[str, Any]) -> State:
    """Return the part of ``state`` below ``prefix``, by the names that ``under`` was given."""
    start = f"{prefix}/"
    return {name.removeprefix(start): content for name, content in state.items() if name.startswith(start)}


def joined(parts: Mapping[str, Stateful]) -> State:
    """Return the states of all parts, each under its name."""
    return {name: content for key, part in parts.items() for name, content in under(key, part.state()).items()}


def take_over(parts: Mapping[str, Stateful], state: Mapping[str, Any]) -> None:
    """Inverse of ``joined``: let every part load its state."""
    for key, part in parts.items():
        part.load_state(below(key, state))
