"""Synthetic data of known difficulty: images labelled by a random network, text by a table, records by hidden factors.

``noise`` is the share of training labels, or of all tokens, that are replaced by random ones. Test labels of images
and records have no noise.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from testbed.training.datasets.base import Dataset
from testbed.training.options.datasets import Clicks, SyntheticTokens, Teacher
from testbed.training.seeds import numpy_stream


def load_teacher(options: Teacher, seed: int) -> Dataset:
    """Return Gaussian images, float32 [count, channels, side, side], labelled by a random network, the teacher.

    The classes are about equally frequent.
    """
    count = options.train_samples + options.test_samples
    inputs = numpy_stream(seed, "teacher", "inputs").standard_normal((count, options.channels * options.side**2))
    labels = _teacher_labels(options, inputs, seed)
    _add_label_noise(labels[: options.train_samples], options.classes, options.noise, seed, "teacher")
    shape = (count, options.channels, options.side, options.side)
    images = torch.from_numpy(inputs.astype(np.float32).reshape(shape))
    return _cut(images, torch.from_numpy(labels), options.train_samples, options.classes)


def _teacher_labels(options: Teacher, inputs: NDArray[np.float64], seed: int) -> NDArray[np.int64]:
    weights = numpy_stream(seed, "teacher", "weights")
    first = weights.standard_normal((inputs.shape[1], options.hidden)) / np.sqrt(inputs.shape[1])
    second = weights.standard_normal((options.hidden, options.classes))
    scores = np.tanh(inputs @ first) @ second
    scores -= scores.mean(axis=0)  # makes the classes about equally frequent
    labels: NDArray[np.int64] = scores.argmax(axis=1).astype(np.int64)
    return labels


def load_clicks(options: Clicks, seed: int) -> Dataset:
    """Return records int64 [count, fields] and labels 1 (clicked) or 0, about equally frequent.

    A record is clicked if the products of its categories' factors, summed over all pairs of fields, exceed the median
    (a factorisation machine: Rendle, ICDM 2010).
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
    _add_label_noise(labels[: options.train_samples], 2, options.noise, seed, "clicks")
    return _cut(torch.from_numpy(records), torch.from_numpy(labels), options.train_samples, 2)


def load_tokens(options: SyntheticTokens, seed: int) -> Dataset:
    """Return windows of ``context`` tokens, int64, and their successors, which a random table determines."""
    count = options.train_samples + options.test_samples
    length = options.context + 1
    follows = numpy_stream(seed, "tokens", "follows").permutation(options.vocabulary)
    draws = numpy_stream(seed, "tokens", "text")
    random = draws.integers(options.vocabulary, size=(count, length))
    drawn = draws.random((count, length)) < options.noise
    text = np.empty((count, length), np.int64)
    text[:, 0] = random[:, 0]
    for place in range(1, length):
        text[:, place] = np.where(drawn[:, place], random[:, place], follows[text[:, place - 1]])
    windows = torch.from_numpy(text)
    return _cut(windows[:, :-1], windows[:, 1:], options.train_samples, options.vocabulary)


def _add_label_noise(labels: NDArray[np.int64], classes: int, share: float, seed: int, name: str) -> None:
    noise = numpy_stream(seed, name, "noise")
    chosen = noise.random(len(labels)) < share
    labels[chosen] = noise.integers(classes, size=int(chosen.sum()))


def _cut(inputs: torch.Tensor, labels: torch.Tensor, end: int, classes: int) -> Dataset:
    """Return the first ``end`` samples for training, the others for testing."""
    return Dataset(inputs[:end], labels[:end], inputs[end:], labels[end:], classes)
