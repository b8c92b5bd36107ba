"""Bounds that are known before a run: the bytes of a model, and the steps of a round."""

from __future__ import annotations

from typing import Any

from testbed.policy.sync.base import SyncPolicy
from testbed.settings.job import Choice
from testbed.training.options import DATASETS, MODELS

_ROUNDS_LOOKED_AT = 10_000  # for the longest one; a schedule that grows later than this has deadlines of its own


def model_bytes(model: Choice, data: Choice) -> int:
    """Return an upper bound of the parameters' size as float32: what is counted, or of samples of usual size."""
    counted = counted_bytes(model, data)
    bound: int = MODELS[model.kind].size_bound_bytes(MODELS.options(model.kind, model.options))
    return counted or bound


def counted_bytes(model: Choice, data: Choice) -> int | None:
    """Return the parameters' size as float32; ``None`` where it is not known before samples are read."""
    entry = MODELS[model.kind]
    source = DATASETS[data.kind]
    sample = source.sample_bound(DATASETS.options(data.kind, data.options))
    if sample is None or entry.takes != source.gives:
        return None
    counted: int = 4 * entry.parameters_bound(MODELS.options(model.kind, model.options), *sample)
    return counted


def most_steps(algorithm: type[SyncPolicy], options: Any, rounds: int) -> int:
    """Return how many steps a worker makes in one of these rounds, at most, as far as that is known beforehand."""
    return max(algorithm.local_steps(options, round_) for round_ in range(min(rounds, _ROUNDS_LOOKED_AT)))
