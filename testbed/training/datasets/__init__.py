"""Data sets by name, loaded from local files once per process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from testbed.axes import options_of
from testbed.errors import ScenarioError
from testbed.training.datasets.base import Dataset, as_model_input, digest_of, state_of_files
from testbed.training.datasets.images import load_cifar10, load_digits, load_mnist
from testbed.training.datasets.movielens import load_movielens
from testbed.training.datasets.synthetic import load_clicks, load_teacher, load_tokens
from testbed.training.datasets.text import load_python_docs, load_text
from testbed.training.datasets.usable import refuse_unusable
from testbed.training.options import DATASETS
from testbed.training.options.declarations import TEXT


def _no_data(options: Any, seed: int) -> Dataset:
    raise ScenarioError("training.data: 'none' has no samples; it goes with a declared model and compute: modelled")


_LOADERS: dict[str, Callable[[Any, int], Dataset]] = {
    "digits": load_digits,
    "mnist": load_mnist,
    "fashion_mnist": load_mnist,
    "cifar10": load_cifar10,
    "text": load_text,
    "python_docs": load_python_docs,
    "teacher": load_teacher,
    "tokens": load_tokens,
    "clicks": load_clicks,
    "movielens": load_movielens,
    "none": _no_data,
    "script": _no_data,
    "user_program": _no_data,
    "traced": _no_data,
}


def load_dataset(kind: str, options: dict[str, Any], seed: int) -> Dataset:
    """Return a data set by name. It is loaded once, and again if its code or its files have changed.

    Raise ``ScenarioError`` if its files are missing or malformed.
    """
    state = state_of_files(DATASETS.options(kind, options))
    return _load_cached(kind, tuple(sorted(options.items())), seed, DATASETS[kind].__module__, state)


def _missing_file(entry: type[Any], options: dict[str, Any]) -> str:
    """Return a message about an option that names a missing file or folder; empty if there is none."""
    for option in (each for each in fields(options_of(entry)) if "path" in each.metadata):
        named = str(options.get(option.name, option.default))
        path = Path(named).expanduser()
        if named and not path.exists():
            about = "" if path.is_absolute() else f"; the path is relative to the working directory, {Path.cwd()}"
            return f"training.data.{option.name}: '{named}' does not exist{about}"
    return ""


@lru_cache(maxsize=4)
def _load_cached(kind: str, options: tuple[tuple[str, Any], ...], seed: int, *_state: Any) -> Dataset:
    return load_anew(kind, dict(options), seed)


def load_anew(kind: str, options: dict[str, Any], seed: int) -> Dataset:
    """Load a data set without the cache of ``load_dataset``. Raise ``ScenarioError`` for unusable samples."""
    load: Callable[[Any, int], Dataset] = _LOADERS.get(kind) or DATASETS[kind].load  # a user's own data set
    try:
        data = load(DATASETS.options(kind, options), seed)
    except OSError as error:
        if missing := _missing_file(DATASETS[kind], options):
            raise ScenarioError(missing) from error
        raise
    if isinstance(data, Dataset):  # any other result is reported by the check of the contract
        refuse_unusable(Path(kind).name, data, is_text=DATASETS[kind].gives == TEXT)
    return data


__all__ = ["Dataset", "as_model_input", "digest_of", "load_anew", "load_dataset"]
