"""Pictures of ten classes: scikit-learn's digits, MNIST and Fashion-MNIST from IDX files, CIFAR-10 from binary files.

Digits are 1 797 images of 8×8 pixels in 17 grey levels (UCI, Alpaydin and Kaynak, 1998), from a file in scikit-learn's
folder: importing scikit-learn itself would delay the start of every run by 2 s. IDX is two zero bytes, a type, the
number of dimensions, sizes as big-endian 32 bits, data. CIFAR-10's records are a label byte and 3 072 bytes, red,
green, blue, row by row.
"""

from __future__ import annotations

import importlib.util
import math
import struct
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from testbed.errors import CapabilityError
from testbed.training.datasets.base import Dataset, find_files, held_out, malformed, read_bytes
from testbed.training.options.datasets import Cifar10, Digits, FashionMnist, Mnist

CLASSES = 10

DIGITS_FILE = Path("datasets", "data", "digits.csv.gz")  # in scikit-learn's folder
GREY_LEVELS = 16.0

IDX_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
MNIST_SOURCE = "https://ossci-datasets.s3.amazonaws.com/mnist/FILE.gz"
FASHION_SOURCE = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/FILE.gz"
_UNSIGNED_BYTE = 0x08

CIFAR10_SHAPE = (3, 32, 32)
CIFAR10_RECORD_BYTES = 1 + 3 * 32 * 32
CIFAR10_TRAIN_FILES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
CIFAR10_TEST_FILE = "test_batch.bin"
CIFAR10_SOURCE = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz, and unpack it"


def load_digits(options: Digits, seed: int) -> Dataset:
    """Return float32 images [count, 1, 8, 8] with values in [0, 1]. Raise ``CapabilityError`` without scikit-learn."""
    package = importlib.util.find_spec("sklearn")
    if package is None or package.origin is None:
        raise CapabilityError("the digits come with scikit-learn, which is not installed; run ./setup.sh")
    rows = np.loadtxt(Path(package.origin).parent / DIGITS_FILE, delimiter=",", dtype=np.float32)
    images = (torch.from_numpy(rows[:, :-1]) / GREY_LEVELS).reshape(-1, 1, 8, 8)
    labels = torch.from_numpy(rows[:, -1].astype(np.int64))
    return held_out(images, labels, round(len(labels) * options.test_share), CLASSES, seed)


def load_mnist(options: Mnist, seed: int) -> Dataset:
    """Return grey images as uint8 [count, 1, 28, 28]. Raise ``ScenarioError`` if files are missing or malformed."""
    source = FASHION_SOURCE if isinstance(options, FashionMnist) else MNIST_SOURCE
    paths = find_files(options.folder, IDX_FILES, source)
    train_images, train_labels, test_images, test_labels = (paths[name] for name in IDX_FILES)
    train = _idx_part(train_images, train_labels)
    test = _idx_part(test_images, test_labels)
    if train[0].shape[1:] != test[0].shape[1:]:
        raise malformed(test_images, "its images have another size than the training images")
    return Dataset(*train, *test, CLASSES).first(options.train_samples, options.test_samples)


def _idx_part(images_path: Path, labels_path: Path) -> tuple[Tensor, Tensor]:
    images = _read_idx(images_path, 3).unsqueeze(1)
    labels = _read_idx(labels_path, 1).long()
    if len(images) != len(labels):
        raise malformed(labels_path, f"has {len(labels)} labels for {len(images)} images")
    return images, _known(labels, labels_path)


def _read_idx(path: Path, dimensions: int) -> Tensor:
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


def load_cifar10(options: Cifar10, seed: int) -> Dataset:
    """Return colour images as uint8 [count, 3, 32, 32]. Raise ``ScenarioError`` if files are missing or malformed."""
    paths = find_files(options.folder, (*CIFAR10_TRAIN_FILES, CIFAR10_TEST_FILE), CIFAR10_SOURCE)
    parts = [_records(paths[name]) for name in CIFAR10_TRAIN_FILES]
    images, labels = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    dataset = Dataset(images, labels, *_records(paths[CIFAR10_TEST_FILE]), CLASSES)
    return dataset.first(options.train_samples, options.test_samples)


def _records(path: Path) -> tuple[Tensor, Tensor]:
    content = read_bytes(path)
    if not content or len(content) % CIFAR10_RECORD_BYTES:
        raise malformed(path, f"holds {len(content)} bytes, which is not a multiple of {CIFAR10_RECORD_BYTES}")
    records = torch.frombuffer(bytearray(content), dtype=torch.uint8).reshape(-1, CIFAR10_RECORD_BYTES)
    labels = _known(records[:, 0].long(), path)
    return records[:, 1:].reshape(-1, *CIFAR10_SHAPE).contiguous(), labels


def _known(labels: Tensor, path: Path) -> Tensor:
    if labels.max() >= CLASSES:
        raise malformed(path, f"has the label {int(labels.max())}, but only 0 to {CLASSES - 1} exist")
    return labels
