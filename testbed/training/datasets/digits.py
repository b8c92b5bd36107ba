"""scikit-learn's handwritten digits: 1 797 images of 8×8 pixels in 17 grey levels (UCI, Alpaydin and Kaynak, 1998).

The file is read from scikit-learn's folder. Importing scikit-learn itself would delay the start of every run by 2 s.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import torch

from testbed.errors import CapabilityError
from testbed.training.datasets.base import Dataset
from testbed.training.options.datasets import Digits
from testbed.training.seeds import numpy_stream

FILE = Path("datasets", "data", "digits.csv.gz")
GREY_LEVELS = 16.0
SIDE = 8
CLASSES = 10


def load_digits(options: Digits, seed: int) -> Dataset:
    """Return float32 images of shape [count, 1, 8, 8] with values in [0, 1].

    A random share of them, ``options.test_share``, is held out for testing; ``seed`` determines which.
    """
    rows = np.loadtxt(_shipped_file(), delimiter=",", dtype=np.float32)
    images = (torch.from_numpy(rows[:, :-1]) / GREY_LEVELS).reshape(-1, 1, SIDE, SIDE)
    labels = torch.from_numpy(rows[:, -1].astype(np.int64))
    order = torch.from_numpy(numpy_stream(seed, "hold out").permutation(len(labels)))
    held_out = round(len(labels) * options.test_share)
    test, train = order[:held_out], order[held_out:]
    return Dataset(images[train], labels[train], images[test], labels[test], classes=CLASSES)


def _shipped_file() -> Path:
    package = importlib.util.find_spec("sklearn")
    if package is None or package.origin is None:
        raise CapabilityError("the digits come with scikit-learn, which is not installed; run ./setup.sh")
    return Path(package.origin).parent / FILE
