"""The techniques to compare: the presets or, for a pipeline, its schedules and placements."""

from __future__ import annotations

from analysis.advise.candidates import Technique
from testbed.axes import AxisError
from testbed.errors import ScenarioError
from testbed.policy.pipeline import PLACEMENTS, SCHEDULES
from testbed.policy.pipeline.placement import Listed
from testbed.scenario import Scenario
from testbed.scenario.presets import find_preset, presets, settings_of


def techniques(names: str | None = None, scenario: Scenario | None = None) -> dict[str, Technique]:
    """Return the presets in a comma-separated list of names, by name. Raise ``ScenarioError`` for an unknown one.

    names     ``all`` or ``None`` for all presets
    scenario  without names, a scenario that cuts its model into stages gets schedules and placements instead
    """
    if names is None and is_pipeline(scenario):
        return _pipelines()
    wanted = list(presets()) if names is None or names == "all" else [name.strip() for name in names.split(",")]
    return {name: _technique(name) for name in wanted}


def is_pipeline(scenario: Scenario | None) -> bool:
    """Return whether a scenario cuts its model into stages."""
    return scenario is not None and not scenario.is_program and scenario.paradigm.declared.cuts_models


def _pipelines() -> dict[str, Technique]:
    """Return every shipped schedule with every shipped placement, except the one that needs a list from the user."""
    placements = [kind for kind, placement in PLACEMENTS.shipped.items() if placement is not Listed]
    return {
        f"{schedule}/{placement}": Technique(
            (f"paradigm.schedule={schedule}", f"paradigm.placement={placement}"), "a pipeline: schedule, placement"
        )
        for schedule in SCHEDULES.shipped
        for placement in placements
    }


def additions(scenario: Scenario | None = None) -> dict[str, Technique]:
    """Return the presets that set a single axis, to be added to other techniques; none for a pipeline."""
    if is_pipeline(scenario):
        return {}
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
