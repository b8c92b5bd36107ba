"""The option of data-parallel paradigms that sums gradients during the backward pass."""

from __future__ import annotations

from typing import Any

BUCKETS, AFTERWARDS = "buckets", "after"
OVERLAP: dict[str, Any] = {
    "help": "buckets: sum a bucket when the backward pass has made it, as PyTorch's DistributedDataParallel does; "
    "after: after the whole backward pass",
    "choices": (AFTERWARDS, BUCKETS),
}
