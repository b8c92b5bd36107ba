"""CIFAR-10 from its binary version: records of one label byte and 3 072 bytes, red, green, blue, row by row."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from testbed.training.datasets.base import Dataset, find_files, malformed, read_bytes
from testbed.training.options.datasets import Cifar10

CLASSES = 10
SHAPE = (3, 32, 32)
RECORD_BYTES = 1 + 3 * 32 * 32
TRAIN_FILES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST_FILE = "test_batch.bin"
SOURCE = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz, and unpack it"


def load_cifar10(options: Cifar10, seed: int) -> Dataset:
    """Return colour images as uint8 [count, 3, 32, 32]. Raise ``ScenarioError`` if files are missing or malformed."""
    paths = find_files(options.folder, (*TRAIN_FILES, TEST_FILE), SOURCE)
    parts = [_records(paths[name]) for name in TRAIN_FILES]
    train_images, train_labels = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    test_images, test_labels = _records(paths[TEST_FILE])
    dataset = Dataset(train_images, train_labels, test_images, test_labels, CLASSES)
    return dataset.first(options.train_samples, options.test_samples)


def _records(path: Path) -> tuple[Tensor, Tensor]:
    content = read_bytes(path)
    if not content or len(content) % RECORD_BYTES:
        raise malformed(path, f"holds {len(content)} bytes, which is no multiple of {RECORD_BYTES}")
    records = torch.frombuffer(bytearray(content), dtype=torch.uint8).reshape(-1, RECORD_BYTES)
    labels = records[:, 0].long()
    if labels.max() >= CLASSES:
        raise malformed(path, f"has the label {int(labels.max())}, and only 0 to {CLASSES - 1} exist")
    return records[:, 1:].reshape(-1, *SHAPE).contiguous(), labels
