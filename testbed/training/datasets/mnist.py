"""MNIST and Fashion-MNIST from IDX files.

IDX is two zero bytes, a type, the number of dimensions, sizes as big-endian 32 bits, data.
"""

from __future__ import annotations

import math
import struct
from pathlib import Path

import torch
from torch import Tensor

from testbed.training.datasets.base import Dataset, find_files, malformed, read_bytes
from testbed.training.options.datasets import FashionMnist, Mnist

_UNSIGNED_BYTE = 0x08

CLASSES = 10
FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
MNIST_SOURCE = "https://ossci-datasets.s3.amazonaws.com/mnist/FILE.gz"
FASHION_SOURCE = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/FILE.gz"


def load_mnist(options: Mnist, seed: int) -> Dataset:
    """Return grey images as uint8 [count, 1, 28, 28]. Raise ``ScenarioError`` if files are missing or malformed."""
    source = FASHION_SOURCE if isinstance(options, FashionMnist) else MNIST_SOURCE
    paths = find_files(options.folder, FILES, source)
    train_images, train_labels = _part(paths[FILES[0]], paths[FILES[1]])
    test_images, test_labels = _part(paths[FILES[2]], paths[FILES[3]])
    if train_images.shape[1:] != test_images.shape[1:]:
        raise malformed(paths[FILES[2]], "its images have another size than the training images")
    dataset = Dataset(train_images, train_labels, test_images, test_labels, CLASSES)
    return dataset.first(options.train_samples, options.test_samples)


def _part(images_path: Path, labels_path: Path) -> tuple[Tensor, Tensor]:
    images, labels = read_idx(images_path, 3).unsqueeze(1), read_idx(labels_path, 1).long()
    if len(images) != len(labels):
        raise malformed(labels_path, f"has {len(labels)} labels for {len(images)} images")
    if labels.max() >= CLASSES:
        raise malformed(labels_path, f"has the label {int(labels.max())}, and only 0 to {CLASSES - 1} exist")
    return images, labels


def read_idx(path: Path, dimensions: int) -> Tensor:
    """Return the uint8 tensor of an IDX file. Raise ``ScenarioError`` unless it is one with ``dimensions``."""
    content = read_bytes(path)
    header = 4 + 4 * dimensions
    if content[:4] != bytes((0, 0, _UNSIGNED_BYTE, dimensions)) or len(content) < header:
        raise malformed(path, f"does not begin as an IDX file of bytes in {dimensions} dimensions")
    shape = struct.unpack(f">{dimensions}I", content[4:header])
    expected = header + math.prod(shape)
    if len(content) != expected:
        raise malformed(path, f"holds {len(content)} bytes, but its header promises {expected}")
    if not math.prod(shape):
        raise malformed(path, "is empty")
    return torch.frombuffer(bytearray(content), dtype=torch.uint8, offset=header).reshape(shape)
