"""Code from outside that made a Plan or that it names: which files, and whether they still are the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from testbed.axes import Axis, CodeFile, sha256_of
from testbed.codec.options import CODECS
from testbed.errors import ScenarioError
from testbed.plan.model import Choice, Plan, TechniquePlan, TrainingPlan
from testbed.policy.order import ORDERS
from testbed.policy.overlay import OVERLAYS
from testbed.policy.shard import SHARDS
from testbed.policy.sync import SYNC
from testbed.training.options import DATASETS, MODELS, OPTIMIZERS, SPLITS


def code_of(technique: TechniquePlan, training: TrainingPlan) -> tuple[CodeFile, ...]:
    """Return the files of all techniques that are not shipped, each once, in a fixed order. Import them."""
    found = {(axis.name, choice.kind): axis.code_of(choice.kind) for axis, choice in _choices(technique, training)}
    return tuple(file for file in found.values() if file is not None)


def check_code(plan: Plan) -> None:
    """Raise ``ScenarioError`` unless every file still has the content that it had when the Plan was made."""
    for file in plan.code:
        if sha256_of(Path(file.path)) != file.sha256:
            raise ScenarioError(
                f"{file.path}: has changed since this run was planned; start it again from its scenario"
            )


def _choices(technique: TechniquePlan, training: TrainingPlan) -> Iterator[tuple[Axis[Any], Choice]]:
    yield from ((SYNC, each) for each in (technique.sync_tier1, technique.sync_tier2))
    yield from ((CODECS, each) for each in (technique.codec_tier1, technique.codec_tier2))
    yield from ((OVERLAYS, each) for each in (technique.overlay_tier1, technique.overlay_tier2))
    yield from ((ORDERS, technique.order), (SHARDS, technique.shard), (OPTIMIZERS, technique.optimizer))
    yield from ((MODELS, training.model), (DATASETS, training.data), (SPLITS, training.split))
