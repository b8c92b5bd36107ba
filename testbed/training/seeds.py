"""One independent random stream per purpose: adding a worker or a draw does not shift anybody else's."""

from __future__ import annotations

import hashlib

import numpy as np
import torch


def seed_for(seed: int, *purpose: object) -> int:
    """A 63-bit seed from the run's seed and a purpose, e.g. ``seed_for(1, "order", rank, epoch)``."""
    text = "/".join(str(item) for item in (seed, *purpose))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def numpy_stream(seed: int, *purpose: object) -> np.random.Generator:
    """A numpy generator for one purpose."""
    return np.random.Generator(np.random.PCG64(seed_for(seed, *purpose)))


def torch_stream(seed: int, *purpose: object) -> torch.Generator:
    """A torch generator for one purpose."""
    return torch.Generator().manual_seed(seed_for(seed, *purpose))
