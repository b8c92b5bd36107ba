"""Synthetic text of any vocabulary: a random table says which token follows which."""

from __future__ import annotations

import numpy as np
import torch

from testbed.training.datasets.base import Dataset
from testbed.training.options.datasets import SyntheticTokens
from testbed.training.seeds import numpy_stream


def load_tokens(options: SyntheticTokens, seed: int) -> Dataset:
    """Return windows of ``context`` tokens, int64, and their successors."""
    count, length = options.train_samples + options.test_samples, options.context + 1
    follows = numpy_stream(seed, "tokens", "follows").permutation(options.vocabulary)
    draws = numpy_stream(seed, "tokens", "text")
    random = draws.integers(options.vocabulary, size=(count, length))
    drawn = draws.random((count, length)) < options.noise
    text = np.empty((count, length), np.int64)
    text[:, 0] = random[:, 0]
    for place in range(1, length):
        text[:, place] = np.where(drawn[:, place], random[:, place], follows[text[:, place - 1]])
    windows = torch.from_numpy(text)
    train, test = windows[: options.train_samples], windows[options.train_samples :]
    return Dataset(train[:, :-1], train[:, 1:], test[:, :-1], test[:, 1:], options.vocabulary)
