"""Where the mathematics runs: the processor, or a GPU that several workers may share."""

from __future__ import annotations

import torch

from testbed.errors import CapabilityError


def torch_device(kind: str, rank: int = 0) -> torch.device:
    """The device for the worker or server of that rank; ranks go round the GPUs, so that several may share one.

    ``CapabilityError`` for ``cuda`` where torch finds no GPU. Bits on a GPU are not those of the processor.
    """
    assert kind in ("cpu", "cuda"), kind
    if kind == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        cuda = torch.version.cuda
        reason = f"for CUDA {cuda}, but finds no GPU: check its driver" if cuda else "without CUDA: install another"
        raise CapabilityError(
            f"device: cuda is not available here: torch {torch.__version__} was built {reason}, or write device: cpu"
        )
    return torch.device("cuda", rank % torch.cuda.device_count())
