"""Bounds that are known before a run: the bytes of a model, and the steps of a round."""

from __future__ import annotations

from typing import Any

from testbed.policy.sync.base import SyncPolicy
from testbed.settings.job import Choice
from testbed.training.options import DATASETS, MODELS
from testbed.training.options.declarations import IMAGES, RECORDS, TEXT, UNKNOWN_MODEL_BYTES

_ROUNDS_LOOKED_AT = 10_000  # for the longest one; a schedule that grows later than this has deadlines of its own


def model_bytes(model: Choice, data: Choice) -> int:
    """Return the parameters' size as float32, or an upper bound: of samples of usual size, if it cannot be counted."""
    entry = MODELS[model.kind]
    options = MODELS.options(model.kind, model.options)
    source = DATASETS[data.kind]
    sample = source.sample_bound(DATASETS.options(data.kind, data.options))
    counted: int = 0
    if sample is not None and entry.takes == source.gives:
        counted = 4 * entry.parameters_bound(options, *sample)
    usual: int = entry.size_bound_bytes(options)
    return counted or usual


def has_unknown_model(model: Choice) -> bool:
    """Return whether a workload brings a model whose size is not known before it runs, as a user's script does."""
    entry = MODELS[model.kind]
    bound: int = entry.size_bound_bytes(MODELS.options(model.kind, model.options))
    return bool(entry.of_workload) and bound == UNKNOWN_MODEL_BYTES


def has_unknown_samples(data: Choice) -> bool:
    """Return whether a data set of samples does not say how large they are, and cannot be loaded here."""
    source = DATASETS[data.kind]
    has_samples = source.gives in (IMAGES, TEXT, RECORDS)
    return has_samples and source.sample_bound(DATASETS.options(data.kind, data.options)) is None


def most_steps(algorithm: type[SyncPolicy], options: Any, rounds: int) -> int:
    """Return how many steps a worker makes in one of these rounds, at most, as far as that is known beforehand."""
    return max(algorithm.local_steps(options, round_) for round_ in range(min(rounds, _ROUNDS_LOOKED_AT)))
