"""Bounds that are known before a run: the bytes of a model, and the steps of a round."""

from __future__ import annotations

from typing import Any

from testbed.policy.sync.base import SyncPolicy
from testbed.settings.job import Choice
from testbed.training.options import DATASETS, MODELS
from testbed.training.options.declarations import IMAGES, RECORDS, TEXT, UNKNOWN_MODEL_BYTES

_ROUNDS_LOOKED_AT = 10_000  # rounds in which the longest is searched; later growth needs deadlines set by the user


def model_bytes(model: Choice, data: Choice) -> int:
    """Return the bytes of the parameters as float32; if they cannot be counted, a bound for samples of usual size."""
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
    """Return whether a workload, such as a user's script, brings a model whose size is unknown before the run."""
    entry = MODELS[model.kind]
    bound: int = entry.size_bound_bytes(MODELS.options(model.kind, model.options))
    return bool(entry.of_workload) and bound == UNKNOWN_MODEL_BYTES


def has_unknown_samples(data: Choice) -> bool:
    """Return whether the size of the samples is unknown: not declared, and the data set cannot be loaded here."""
    source = DATASETS[data.kind]
    has_samples = source.gives in (IMAGES, TEXT, RECORDS)
    return has_samples and source.sample_bound(DATASETS.options(data.kind, data.options)) is None


def most_steps(algorithm: type[SyncPolicy], options: Any, rounds: int) -> int:
    """Return the most steps that a worker makes in one round, among the first 10 000 of ``rounds``."""
    return max(algorithm.local_steps(options, round_) for round_ in range(min(rounds, _ROUNDS_LOOKED_AT)))
