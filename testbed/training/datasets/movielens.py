"""MovieLens ratings as records of a user and a film; the label says whether the user liked the film.

A line has user, film, stars and time, separated by tabs (``u.data``), double colons (``ratings.dat``) or commas
(``ratings.csv``, which begins with a header).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from testbed.training.datasets.base import Dataset, find_files, held_out, malformed, read_bytes
from testbed.training.options.datasets import MovieLens

LIKED_STARS = 4
SOURCE = "https://files.grouplens.org/datasets/movielens/ml-100k.zip, and unpack it"


def load_movielens(options: MovieLens, seed: int) -> Dataset:
    """Return records int64 [count, 2]: users, then films, numbered from 0; a random share, by ``seed``, is for testing.

    Raise ``ScenarioError`` if the file is missing or malformed.
    """
    named = Path(options.file)
    path = find_files(str(named.parent), (named.name,), SOURCE, "file")[named.name]
    ratings = _ratings(path)
    users, films = (np.unique(column, return_inverse=True)[1] for column in ratings[:, :2].T)
    records = torch.from_numpy(np.stack([users, films + users.max() + 1], axis=1).astype(np.int64))
    labels = torch.from_numpy((ratings[:, 2] >= LIKED_STARS).astype(np.int64))
    return held_out(records, labels, max(1, round(len(labels) * options.test_share)), 2, seed)


def _ratings(path: Path) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Return user, film and stars of each line."""
    lines = read_bytes(path).decode("utf-8", "replace").replace("::", ",").replace("\t", ",").splitlines()
    if lines and lines[0][:1].isalpha():
        del lines[0]
    if len(lines) < 2:
        raise malformed(path, f"has {len(lines)} ratings")
    try:
        return np.loadtxt(lines, delimiter=",", usecols=(0, 1, 2), ndmin=2)
    except (ValueError, IndexError) as error:
        raise malformed(path, f"is not a list of user, film, stars: {error}") from error
