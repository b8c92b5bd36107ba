"""scikit-learn's handwritten digits."""

from __future__ import annotations

import numpy as np
import torch

from testbed.training.datasets.base import Dataset
from testbed.training.options.datasets import Digits
from testbed.training.seeds import numpy_stream


def load_digits(options: Digits, seed: int) -> Dataset:
    """Grey images as float32 [count, 1, 8, 8]; which ones are held out depends on ``seed``."""
    from sklearn.datasets import load_digits as load_from_sklearn

    raw = load_from_sklearn()
    images = torch.from_numpy((raw.images / 16.0).astype(np.float32)).unsqueeze(1)
    labels = torch.from_numpy(raw.target.astype(np.int64))
    order = torch.from_numpy(numpy_stream(seed, "hold out").permutation(len(labels)))
    held_out = round(len(labels) * options.test_share)
    test, train = order[:held_out], order[held_out:]
    return Dataset(images[train], labels[train], images[test], labels[test], classes=10)
