"""The device of the computation: the processor, or a GPU that several workers may share."""

from __future__ import annotations

import torch

from testbed.errors import CapabilityError


def torch_device(kind: str, rank: int = 0) -> torch.device:
    """Return the device for the worker or server of that rank; ranks are distributed over the GPUs round robin.

    Raise ``CapabilityError`` for ``cuda`` if torch finds no GPU. Results on a GPU differ in bits from the processor's.
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
