"""One independent random stream per purpose: an additional worker or draw changes no other stream."""

from __future__ import annotations

import hashlib

import numpy as np
import torch


def seed_for(seed: int, *purpose: object) -> int:
    """Return a 63-bit seed from the run's seed and a purpose, e.g. ``seed_for(1, "order", rank, epoch)``."""
    text = "/".join(str(item) for item in (seed, *purpose))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def numpy_stream(seed: int, *purpose: object) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed_for(seed, *purpose)))


def torch_stream(seed: int, *purpose: object) -> torch.Generator:
    return torch.Generator().manual_seed(seed_for(seed, *purpose))
