"""``technique: hfa`` names a preset (``testbed.preset``): a technique that sets values on several axes.

A scenario may add settings. Its own options override those of the preset; a setting that would turn it into another
technique is refused:

    technique: hfa
    sync: {k1: 10}        # instead of the preset's 5
    sync: fsa             # refused: it contradicts 'technique: hfa'

``--set technique=hfa``, or a sweep over techniques, replaces all settings of a file on the axes of techniques, as these
belong to another technique. The optimizer and its options stay, unless another optimizer defines the technique; the
optimizer runs at the place that the technique needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from testbed.axes import Axis, AxisError, names_code
from testbed.policy.sync import SYNC
from testbed.preset import Preset
from testbed.scenario.reading.axes import AXES, CODE_PATTERN, TIERS
from testbed.scenario.reading.document import Mapping as Entries
from testbed.scenario.reading.document import Node, Scalar, Where, copied
from testbed.scenario.reading.quantities import FieldType, text_of
from testbed.scenario.reading.violations import Violation
from testbed.suggest import suggestion

KEY = "technique"
TECHNIQUE_AXES = ("sync", "codec", "order", "overlay", "shard", "paradigm")
_OPTIMIZER = "optimizer"


@cache
def presets() -> Mapping[str, Preset]:
    """Return all presets of shipped and installed techniques, by name."""
    found: dict[str, Preset] = {}
    for axis in TECHNIQUE_AXES:
        for kind, entry in AXES[axis].items():
            for preset in _declared_by(entry):
                found.setdefault(preset.name, _completed(preset, axis, kind))
    return found


def resolved(name: str, folder: Path | None) -> str:
    """Return the name of a preset; if it is a class in a file, with the file's absolute path."""
    return SYNC.resolve(name, folder) if names_code(name) else name


def find_preset(name: str, allow_code: bool = True) -> Preset:
    """Return the preset of this name, or the first one that the class ``FILE.py:Class`` declares.

    ``allow_code``: whether the class may be imported. Raise ``AxisError`` if there is none.
    """
    known = presets()
    if name in known:
        return known[name]
    if not names_code(name):
        raise AxisError(f"'{name}' is not one of {', '.join(known)}", _of_kind(name) or suggestion(name, known))
    if not allow_code:
        problem = f"'{name}' names code, but this file is not at or below the working directory"
        raise AxisError(problem, "read that code first, then give --allow-code")
    for axis in TECHNIQUE_AXES:
        table = AXES[axis]
        if isinstance(table, Axis) and table.derives(name):
            declared = _declared_by(table[name])
            if not declared:
                raise AxisError(f"'{name}' declares no preset", "write 'presets = (Preset(…),)' in the class")
            return _completed(declared[0], axis, name)
    raise AxisError(f"'{name}' is not a technique of any of the axes {', '.join(TECHNIQUE_AXES)}")


def _of_kind(kind: str) -> str:
    """Return a hint if ``kind`` is not the name of a preset, but a kind on one of the axes that presets set."""
    for axis in TECHNIQUE_AXES:
        names = [preset.name for preset in _declared_by(AXES[axis][kind])] if kind in AXES[axis] else []
        if names:
            return f"'{kind}' is a kind of '{axis}'; did you mean '{' or '.join(names)}'?".replace(" or ", "' or '")
    return ""


def with_preset(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a scenario's document with the preset ``name`` in place of its own values on the axes of techniques.

    ``testbed.load`` reads and checks it. Raise ``AxisError`` if there is no such preset.
    """
    preset = find_preset(name)
    found = {key: value for key, value in document.items() if key not in TECHNIQUE_AXES}
    optimizer = found.get(_OPTIMIZER)
    if isinstance(optimizer, Mapping):
        found[_OPTIMIZER] = {key: value for key, value in optimizer.items() if key != "at"}
    kind = optimizer.get("kind") if isinstance(optimizer, Mapping) else optimizer
    if _has_other_optimizer(preset, kind):
        del found[_OPTIMIZER]
    return {**found, KEY: name}


def remove_other_technique(root: Entries, preset: Preset) -> None:
    """Remove the settings of a scenario's tree on the axes of techniques, before ``fill`` adds those of the preset."""
    for axis in TECHNIQUE_AXES:
        root.entries.pop(axis, None)
        root.keys.pop(axis, None)
    optimizer = root.entries.get(_OPTIMIZER)
    if isinstance(optimizer, Entries):
        optimizer.entries.pop("at", None)
        optimizer.keys.pop("at", None)
    if _has_other_optimizer(preset, _kind_of(optimizer)):
        del root.entries[_OPTIMIZER], root.keys[_OPTIMIZER]


def fill(root: Entries, preset: Preset, where: Where) -> None:
    """Add the settings of the preset that a scenario's tree leaves out. Messages give ``where`` as their place."""
    for section, value in preset.settings.items():
        if section == _OPTIMIZER and "workload" in root.entries:
            continue  # a script has its own optimizer
        root.entries[section] = _filled(root.entries.get(section), _node(value, where))
        root.keys.setdefault(section, where)


def contradictions(root: Entries, preset: Preset, name: str) -> Iterator[Violation]:
    """Yield the settings of a scenario's tree, after ``fill``, that contradict ``technique: name``."""
    for path in preset.defining:
        *sections, option = path.split(".")
        wanted = str(_at(preset.settings, (*sections, option)))
        found = list(_places(root, tuple(sections), option))
        if found and wanted not in [node.text for _, node in found]:
            at, node = found[-1]
            problem = f"{node!r} contradicts '{KEY}: {name}', which has '{wanted}' there"
            yield Violation(at, problem, f"remove it, or '{KEY}: {name}'")


def settings_of(preset: Preset) -> dict[str, str]:
    """Return the settings of a preset by section, as a scenario writes them on one line."""
    return {section: in_one_line(value) for section, value in preset.settings.items()}


def in_one_line(value: Any) -> str:
    """Return a value of a scenario as YAML on one line; a kind without options is a bare word."""
    if not isinstance(value, Mapping):
        return _text(value)
    if set(value) == {"kind"}:
        return _text(value["kind"])
    return "{" + ", ".join(f"{key}: {in_one_line(entry)}" for key, entry in value.items()) + "}"


@dataclass(frozen=True)
class _Name(FieldType):
    """The name of a preset. Its schema is made when it is asked for: installed techniques are imported then."""

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return {"anyOf": [{"enum": list(presets())}, {"type": "string", "pattern": CODE_PATTERN}]}


NAME = _Name(text_of)  # a name that is unknown has been refused when the preset was looked up


def _declared_by(entry: type[Any]) -> tuple[Preset, ...]:
    """Return the presets that a class itself declares, without those of its base, which is another technique."""
    found: tuple[Preset, ...] = vars(entry).get("presets", ())
    return found


def _completed(preset: Preset, axis: str, kind: str) -> Preset:
    """Return the preset with the kind on its own axis, which also defines it."""
    own = preset.settings[axis]
    if by_tier := {tier: own[tier] for tier in TIERS if tier in own}:
        mine = [tier for tier, value in by_tier.items() if isinstance(value, Mapping)]
        value: dict[str, Any] = {tier: {"kind": kind, **own[tier]} if tier in mine else own[tier] for tier in by_tier}
        defining = [f"{axis}.{tier}.kind" for tier in mine]
    else:
        value = {"kind": kind, **own}
        defining = [f"{axis}.kind"]
    return replace(preset, settings={**preset.settings, axis: value}, defining=(*defining, *preset.defining))


def _has_other_optimizer(preset: Preset, kind: str | None) -> bool:
    """Return whether the preset is defined by another optimizer than this one."""
    if kind is None or f"{_OPTIMIZER}.kind" not in preset.defining:
        return False
    return bool(preset.settings[_OPTIMIZER]["kind"] != kind)


def _kind_of(node: Node | None) -> str | None:
    if isinstance(node, Entries):
        node = node.entries.get("kind")
    return node.text if isinstance(node, Scalar) else None


def _node(value: Any, where: Where) -> Node:
    if isinstance(value, Mapping):
        entries = {key: _node(entry, where) for key, entry in value.items()}
        return Entries(where, entries, dict.fromkeys(entries, where))
    return Scalar(_text(value), where)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _filled(node: Node | None, value: Node) -> Node:
    """Return ``node`` with the settings of ``value`` that it leaves out; unchanged if it is of another kind."""
    if node is None or (isinstance(node, Scalar) and node.is_null):
        return copied(value)
    if not isinstance(value, Entries):
        return node
    if isinstance(node, Scalar):
        node = Entries(node.where, {"kind": node}, {"kind": node.where})
    if not isinstance(node, Entries):
        return node
    if _has_tiers(node) and not _has_tiers(value):
        value = _for_tiers(value, TIERS)
    elif _has_tiers(value) and not _has_tiers(node):
        # options without a kind are meant for the tiers on which the preset has options
        taking = [tier for tier in TIERS if "kind" in node.entries or isinstance(value.entries.get(tier), Entries)]
        node = _for_tiers(node, taking)
    kind = node.entries.get("kind")
    if isinstance(kind, Scalar) and kind.text != _kind_of(value):
        return node
    for key, entry in value.entries.items():
        node.entries[key] = _filled(node.entries.get(key), entry)
        node.keys.setdefault(key, entry.where)
    return node


def _has_tiers(node: Entries) -> bool:
    return any(tier in node.entries for tier in TIERS)


def _for_tiers(node: Entries, tiers: tuple[str, ...] | list[str]) -> Entries:
    return Entries(node.where, {tier: copied(node) for tier in tiers}, dict.fromkeys(tiers, node.where))


def _at(settings: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    found: Any = settings
    for key in path:
        found = found[key]
    return found


def _places(root: Entries, sections: tuple[str, ...], option: str) -> Iterator[tuple[tuple[str, ...], Scalar]]:
    """Yield the place and the value of an option of a section: once, or for each tier."""
    section: Node | None = root
    for key in sections:
        section = section.entries.get(key) if isinstance(section, Entries) else None
    if not isinstance(section, Entries):
        return
    tiers = {(*sections, tier): section.entries[tier] for tier in TIERS if tier in section.entries}
    for place, holder in (tiers or {sections: section}).items():
        if isinstance(holder, Entries) and isinstance(found := holder.entries.get(option), Scalar):
            yield (*place, option), found
        elif isinstance(holder, Scalar) and option == "kind":
            yield place, holder
