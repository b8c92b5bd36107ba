"""The techniques that are tried: the presets."""

from __future__ import annotations

from analysis.advise.candidates import Technique
from testbed.axes import AxisError
from testbed.errors import ScenarioError
from testbed.scenario.presets import find_preset, presets


def techniques(names: str | None = None) -> dict[str, Technique]:
    """Return the presets of a comma-separated list of names, or all. Raise ``ScenarioError`` for an unknown one."""
    wanted = list(presets()) if names is None or names == "all" else [name.strip() for name in names.split(",")]
    return {name: _technique(name) for name in wanted}


def _technique(name: str) -> Technique:
    try:
        preset = find_preset(name)
    except AxisError as error:
        raise ScenarioError(f"--techniques: {error}") from error
    return Technique((f"technique={name}",), preset.summary)
