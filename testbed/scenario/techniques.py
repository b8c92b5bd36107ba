"""Named techniques, each by the settings that make it: from a file, or from the command line.

In YAML, the name and what it sets, as overrides (paths with dots, values as in a scenario)::

    fsa: {sync: fsa}
    hfa: {sync: {kind: hfa, k1: 2, k2: 2}, optimizer.at: worker}

On the command line: ``NAME:PATH=VALUE;PATH=VALUE``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from testbed.errors import ScenarioError
from testbed.scenario.reading.document import Mapping, flow
from testbed.scenario.reading.files import read_document

Techniques = dict[str, dict[str, str]]


def read_techniques(path: Path) -> Techniques:
    """Return all techniques of a file, in its order. Raise ``ScenarioError``."""
    root = read_document(path)
    if not isinstance(root, Mapping) or not root.entries:
        raise ScenarioError(f"{path}: expected a mapping, each line NAME: {{path: value, …}}")
    found: Techniques = {}
    for name, settings in root.entries.items():
        if not isinstance(settings, Mapping):
            raise ScenarioError(f"{root.keys[name]}: {name}: expected {{path: value, …}}")
        found[name] = {setting: flow(value) for setting, value in settings.entries.items()}
    return found


def from_texts(texts: Sequence[str]) -> Techniques:
    """Return the techniques of ``NAME:PATH=VALUE;…`` texts. Raise ``ScenarioError``."""
    found: Techniques = {}
    for text in texts:
        name, _, settings = text.partition(":")
        if name.strip() in found:
            raise ScenarioError(f"{text}: there is a technique '{name.strip()}' already (give it another name)")
        found[name.strip()] = settings_of(settings.split(";"))
    return found


def settings_of(texts: Sequence[str]) -> dict[str, str]:
    """Return the settings of ``PATH=VALUE`` texts, without empty ones. Raise ``ScenarioError``."""
    found: dict[str, str] = {}
    for text in filter(None, map(str.strip, texts)):
        path, equals, value = text.partition("=")
        if not equals or not path.strip():
            raise ScenarioError(f"{text}: not a setting (write path=value)")
        if path.strip() in found:
            raise ScenarioError(f"{text}: {path.strip()} is set already (keep one of them)")
        found[path.strip()] = value.strip()
    return found
