"""Describes every axis of a scenario: its kinds, and their options with defaults.

The descriptions come from the techniques' options dataclasses, like the schema itself.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, get_type_hints

from testbed.axes import options_of
from testbed.errors import ScenarioError
from testbed.preset import Preset
from testbed.scenario.presets import KEY, presets, settings_of
from testbed.scenario.reading.axes import AXES
from testbed.scenario.reading.leaves import leaf
from testbed.suggest import nearest_or_all


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a kind. ``default`` is written as in a scenario; it is empty if the option is required."""

    name: str
    default: str
    about: str


@dataclass(frozen=True, slots=True)
class AxisValue:
    """One kind of an axis, or a preset. The ``options`` of a preset are the values that it sets, by section."""

    name: str
    about: str
    options: tuple[Option, ...]


def kinds_of(axis: str) -> tuple[AxisValue, ...]:
    """Return all kinds of an axis in its table's order; for ``technique``, all presets. Raise ``ScenarioError``."""
    if axis == KEY:
        return tuple(map(_preset, presets().values()))
    if axis not in AXES:
        raise ScenarioError(f"'{axis}' is not an axis of a scenario ({nearest_or_all(axis, [KEY, *AXES])})")
    return tuple(_kind(name, entry) for name, entry in AXES[axis].items())


def _preset(preset: Preset) -> AxisValue:
    values = tuple(Option(section, value, "") for section, value in settings_of(preset).items())
    return AxisValue(preset.name, f"{preset.summary} ({preset.source})", values)


def _kind(name: str, entry: type[Any]) -> AxisValue:
    options = options_of(entry)
    about = (entry.__doc__ or "").strip().partition("\n\n")[0]
    hints = get_type_hints(options)
    fields = dataclasses.fields(options)
    return AxisValue(name, " ".join(about.split()), tuple(_option(field, hints[field.name]) for field in fields))


def _option(field: dataclasses.Field[Any], hint: Any) -> Option:
    about = str(field.metadata.get("help", ""))
    if "choices" in field.metadata:
        about = f"{about} ({', '.join(field.metadata['choices'])})"
    return Option(field.name, _default(field, hint), about)


def _default(field: dataclasses.Field[Any], hint: Any) -> str:
    value = field.default
    if value is dataclasses.MISSING:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if "axis" in field.metadata:
        return str(value.kind)
    if write := leaf(hint, field.metadata).write:
        return str(write(value))
    return "''" if value == "" else str(value)
