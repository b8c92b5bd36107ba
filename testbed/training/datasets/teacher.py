"""A synthetic data set of known difficulty: a random network, the teacher, labels Gaussian images."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from testbed.training.datasets.base import Dataset
from testbed.training.options.datasets import Teacher
from testbed.training.seeds import numpy_stream


def load_teacher(options: Teacher, seed: int) -> Dataset:
    """Return float32 images [count, channels, side, side] and the teacher's classes, about equally frequent.

    ``noise`` of the training labels are replaced by random ones; test labels are always the teacher's.
    """
    count = options.train_samples + options.test_samples
    inputs = numpy_stream(seed, "teacher", "inputs").standard_normal((count, options.channels * options.side**2))
    labels = _teacher_labels(options, inputs, seed)
    _add_label_noise(labels[: options.train_samples], options, seed)
    shape = (count, options.channels, options.side, options.side)
    images = torch.from_numpy(inputs.astype(np.float32).reshape(shape))
    classes = torch.from_numpy(labels)
    train, test = slice(None, options.train_samples), slice(options.train_samples, None)
    return Dataset(images[train], classes[train], images[test], classes[test], options.classes)


def _teacher_labels(options: Teacher, inputs: NDArray[np.float64], seed: int) -> NDArray[np.int64]:
    weights = numpy_stream(seed, "teacher", "weights")
    first = weights.standard_normal((inputs.shape[1], options.hidden)) / np.sqrt(inputs.shape[1])
    second = weights.standard_normal((options.hidden, options.classes))
    scores = np.tanh(inputs @ first) @ second
    scores -= scores.mean(axis=0)  # makes the classes about equally frequent
    labels: NDArray[np.int64] = scores.argmax(axis=1).astype(np.int64)
    return labels


def _add_label_noise(labels: NDArray[np.int64], options: Teacher, seed: int) -> None:
    noise = numpy_stream(seed, "teacher", "noise")
    chosen = noise.random(len(labels)) < options.noise
    labels[chosen] = noise.integers(options.classes, size=int(chosen.sum()))
