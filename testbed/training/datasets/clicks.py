"""Synthetic records of categories: whether a record is clicked follows from hidden factors of its categories."""

from __future__ import annotations

import numpy as np
import torch

from testbed.training.datasets.base import Dataset
from testbed.training.options.datasets import Clicks
from testbed.training.seeds import numpy_stream


def load_clicks(options: Clicks, seed: int) -> Dataset:
    """Return records int64 [count, fields] and labels 1 (clicked) or 0, about equally frequent.

    A record is clicked if the products of its categories' factors, summed over all pairs of fields, exceed the median
    (a factorisation machine: Rendle, ICDM 2010). ``noise`` of the training labels are replaced by random ones.
    """
    count = options.train_samples + options.test_samples
    frequency = np.arange(1, options.categories + 1) ** -options.skew
    drawn = numpy_stream(seed, "clicks", "records").choice(
        options.categories, (count, options.fields), p=frequency / frequency.sum()
    )
    records = drawn + options.categories * np.arange(options.fields)
    factors = numpy_stream(seed, "clicks", "factors").standard_normal(
        (options.fields * options.categories, options.factors)
    )
    chosen = factors[records]
    scores = (chosen.sum(axis=1) ** 2 - (chosen**2).sum(axis=1)).sum(axis=1)  # twice the sum over pairs
    labels = (scores > np.median(scores)).astype(np.int64)
    noise = numpy_stream(seed, "clicks", "noise")
    random = noise.random(options.train_samples) < options.noise
    labels[: options.train_samples][random] = noise.integers(2, size=int(random.sum()))
    inputs, targets, end = torch.from_numpy(records), torch.from_numpy(labels), options.train_samples
    return Dataset(inputs[:end], targets[:end], inputs[end:], targets[end:], classes=2)
