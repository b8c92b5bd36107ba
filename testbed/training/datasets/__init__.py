"""Data sets by name, loaded from local files once per process."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from testbed.errors import ScenarioError
from testbed.training.datasets.base import Dataset, as_model_input, digest_of
from testbed.training.datasets.images import load_cifar10, load_digits, load_mnist
from testbed.training.datasets.movielens import load_movielens
from testbed.training.datasets.synthetic import load_clicks, load_teacher, load_tokens
from testbed.training.datasets.text import load_text
from testbed.training.options import DATASETS


def _no_data(options: Any, seed: int) -> Dataset:
    raise ScenarioError("training.data: 'none' has no samples; it goes with a declared model and compute: modelled")


_LOADERS: dict[str, Callable[[Any, int], Dataset]] = {
    "digits": load_digits,
    "mnist": load_mnist,
    "fashion_mnist": load_mnist,
    "cifar10": load_cifar10,
    "text": load_text,
    "teacher": load_teacher,
    "tokens": load_tokens,
    "clicks": load_clicks,
    "movielens": load_movielens,
    "none": _no_data,
    "script": _no_data,
    "user_program": _no_data,
}


def load_dataset(kind: str, options: dict[str, Any], seed: int) -> Dataset:
    """Return a data set by name. Raise ``ScenarioError`` if its files are missing or malformed."""
    return _load_cached(kind, tuple(sorted(options.items())), seed)


@lru_cache(maxsize=4)
def _load_cached(kind: str, options: tuple[tuple[str, Any], ...], seed: int) -> Dataset:
    return load_anew(kind, dict(options), seed)


def load_anew(kind: str, options: dict[str, Any], seed: int) -> Dataset:
    """Return the same as ``load_dataset``, from its loader again."""
    load: Callable[[Any, int], Dataset] = _LOADERS.get(kind) or DATASETS[kind].load  # a data set from outside
    return load(DATASETS.options(kind, options), seed)


__all__ = ["Dataset", "as_model_input", "digest_of", "load_anew", "load_dataset"]
