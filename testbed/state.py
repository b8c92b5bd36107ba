"""The states of a node's parts, which a checkpoint keeps, and functions to join and split them.

A state is flat: names are paths, such as ``codec/memory/3/unsent``; contents are tensors, numbers and texts. A
technique returns everything that it remembers between rounds from ``state``, and restores it in ``load_state``. So no
other code needs to know which techniques remember something.
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
        """Restore ``state``, which a part of the same kind has returned."""


K = TypeVar("K")
P = TypeVar("P", bound=Stateful)


class Remembering:
    """A part whose state consists of the attributes that it declares, by default none.

    class Residuals(Remembering):
        remembers = ("_unsent", "_round")

        def __init__(self) -> None:
            self._unsent: dict[int, Tensor] = {}
            self._round = 0

    remembers  names of attributes. Each is a number, a text, a tensor or ``None``; a list or mapping of tensors; a part
               with its own state, or a list or mapping of such parts, which must exist before loading (use
               ``PartsByKey`` for parts that are made on demand); or a container of plain Python literals
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
        """Restore ``state``, which a part of the same kind has returned. An empty state changes nothing."""
        for name in self.remembers if state else ():
            value = getattr(self, name)
            public = name.lstrip("_")
            if parts := _parts_of(value):
                take_over({f"{public}{key}": part for key, part in parts.items()}, state)
            else:
                setattr(self, name, _loaded(public, value, state))


class PartsByKey(dict[K, P]):
    """Parts that are made when they are first needed. Loaded states wait for parts that cannot be made yet.

    make  makes the part of a key; ``None``: callers make and set the parts
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
        """Return the states of all parts, waiting ones included, each under its position in the list ``keys``."""
        kept = self._waiting | {key: part.state() for key, part in self.items()}
        state: State = {"keys": _literal(list(kept))} if kept else {}
        for place, content in enumerate(kept.values()):
            state |= under(str(place), content)
        return state

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore the states of parts, making them if possible; the other states wait."""
        for place, key in enumerate(literal_eval(state.get("keys", "[]"))):
            content = below(str(place), state)
            if key in self or self._make is not None:
                self[key].load_state(content)
            else:
                self._waiting[key] = content


def _parts_of(value: Any) -> dict[str, Stateful]:
    """Return ``value`` itself, or the items in it, if they are parts, by the suffix of their names."""
    items = _items_of(value)
    if hasattr(value, "load_state"):
        return {"": value}
    return {f"/{key!r}": each for key, each in items.items() if hasattr(each, "load_state")}


def _is_tensor(value: Any) -> TypeGuard[Any]:
    """Return whether ``value`` is a tensor, without importing torch, which ``testbed.policy`` must not import."""
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
    """Return a container of plain values as a Python literal. Infinity is written as 1e999, as it has no literal."""
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
    """Return the loaded value of an attribute. The type of its present value, ``before``, tells how to read it."""
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
    """Return a copy of a tensor, on the device of ``near`` if that is a tensor."""
    return tensor.to(near.device if _is_tensor(near) else tensor.device, copy=True)


def under(prefix: str, state: Mapping[str, Any]) -> State:
    """Return the same state with ``prefix/`` before every name."""
    return {f"{prefix}/{name}": content for name, content in state.items()}


def below(prefix: str, state: Mapping[str, Any]) -> State:
    """Inverse of ``under``: return the entries of ``state`` below ``prefix``, without the prefix."""
    start = f"{prefix}/"
    return {name.removeprefix(start): content for name, content in state.items() if name.startswith(start)}


def joined(parts: Mapping[str, Stateful]) -> State:
    """Return the states of all parts, each under its name."""
    return {name: content for key, part in parts.items() for name, content in under(key, part.state()).items()}


def take_over(parts: Mapping[str, Stateful], state: Mapping[str, Any]) -> None:
    """Inverse of ``joined``: let every part load its state."""
    for key, part in parts.items():
        part.load_state(below(key, state))
