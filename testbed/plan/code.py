"""The files of users' code that a Plan names or that took part in making it, and the check that they are unchanged."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from testbed.aggregation import AGGREGATION
from testbed.axes import Axis, CodeFile, sha256_of
from testbed.codec.options import CODECS
from testbed.errors import ScenarioError
from testbed.paradigms import Pipeline
from testbed.plan.model import DECLARED, Plan, TechniquePlan, TrainingPlan
from testbed.policy.order import ORDERS
from testbed.policy.overlay import OVERLAYS
from testbed.policy.pipeline import PLACEMENTS, SCHEDULES
from testbed.policy.shard import SHARDS
from testbed.policy.sync import SYNC
from testbed.training.options import DATASETS, MODELS, OPTIMIZERS, SPLITS

AXES: dict[str, Axis[Any]] = {
    axis.name: axis
    for axis in (
        SYNC,
        CODECS,
        ORDERS,
        OVERLAYS,
        SHARDS,
        AGGREGATION,
        SCHEDULES,
        PLACEMENTS,
        MODELS,
        DATASETS,
        SPLITS,
        OPTIMIZERS,
    )
}

_DECIDED = (SCHEDULES.name, PLACEMENTS.name)  # nodes do not need their code: the Plan has the tasks and the stages


def code_of(technique: TechniquePlan, training: TrainingPlan) -> tuple[CodeFile, ...]:
    """Import all techniques that are not shipped. Return their files, each once, in a fixed order."""
    found: dict[tuple[str, str], CodeFile | None] = {}
    for part in (technique, training):
        for field in fields(part):
            axis = AXES.get(field.name.removesuffix("_tier1").removesuffix("_tier2").removeprefix("outer_"))
            choice = getattr(part, field.name)
            if axis is not None and choice.kind != DECLARED:
                found[axis.name, choice.kind] = axis.code_of(choice.kind)
    return tuple(file for file in found.values() if file is not None)


def code_of_pipeline(options: Pipeline | None) -> tuple[CodeFile, ...]:
    """Import a pipeline's techniques that are not shipped, and return their files, as ``code_of`` does."""
    if options is None:
        return ()
    parts = (
        (SCHEDULES, options.schedule),
        (PLACEMENTS, options.placement),
        (CODECS, options.activations),
        (CODECS, options.activation_gradients),
    )
    found = (axis.code_of(technique.kind) for axis, technique in parts)
    return tuple(dict.fromkeys(file for file in found if file is not None))


def check_code(plan: Plan) -> None:
    """Raise ``ScenarioError`` if a file that nodes need has changed since the Plan was made."""
    for file in plan.code:
        if file.axis not in _DECIDED and sha256_of(Path(file.path)) != file.sha256:
            raise ScenarioError(
                f"{file.path}: has changed since this run was planned; start it again from its scenario"
            )
