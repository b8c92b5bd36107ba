"""The techniques that are tried: the presets."""

from __future__ import annotations

from analysis.advise.candidates import Technique
from testbed.axes import AxisError
from testbed.errors import ScenarioError
from testbed.scenario.presets import find_preset, presets, settings_of


def techniques(names: str | None = None) -> dict[str, Technique]:
    """Return the presets of a comma-separated list of names, or all. Raise ``ScenarioError`` for an unknown one."""
    wanted = list(presets()) if names is None or names == "all" else [name.strip() for name in names.split(",")]
    return {name: _technique(name) for name in wanted}


def additions() -> dict[str, Technique]:
    """Return the presets that change one axis alone, by what they add to another technique."""
    return {
        name: Technique(tuple(f"{axis}={text}" for axis, text in settings_of(preset).items()), preset.summary)
        for name, preset in presets().items()
        if len(preset.settings) == 1 and not _AXES_OF_WHOLE_TECHNIQUES.intersection(preset.settings)
    }


_AXES_OF_WHOLE_TECHNIQUES = {"sync", "paradigm"}


def _technique(name: str) -> Technique:
    try:
        preset = find_preset(name)
    except AxisError as error:
        raise ScenarioError(f"--techniques: {error}") from error
    return Technique((f"technique={name}",), preset.summary)
