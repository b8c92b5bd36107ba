"""Decides which tensors of a script can travel: everything on the wire is float32, which must not change any number.

A tensor travels as float32 if float32 holds each of its numbers exactly (float32, float16, bfloat16, float8, bool, and
integers up to 2**24 in size). Other tensors are refused by name. The only exception is a tensor that travels once and
is never summed (the first value of a frozen parameter): its bits travel as 16-bit numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from testbed.errors import ScenarioError

_WIDER = (torch.float64, torch.uint64, torch.complex32, torch.complex64, torch.complex128)
_SHORT = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.uint16)
_LARGEST = 1 << 24  # float32 holds every integer up to this one


def dense(tensor: Tensor) -> Tensor:
    """Return a dense tensor; the gradient of an embedding may be sparse, with only some of its rows."""
    return tensor if tensor.layout is torch.strided else tensor.to_dense()


def refuse_without_numbers(name: str, tensor: Tensor) -> None:
    """Raise ``ScenarioError`` unless this process has all numbers of ``tensor``."""
    if is_lazy(tensor):
        raise ScenarioError(f"{name} is not initialised yet; let the model make one forward pass before")
    if hasattr(tensor, "full_tensor"):
        raise ScenarioError(
            f"{name} is a DTensor, of which each process has a part; give the store whole tensors: full_tensor(), or "
            "the module before it is distributed"
        )
    if tensor.is_meta:
        raise ScenarioError(
            f"{name} has no data, as it is on the meta device; make it on a real one, or call "
            "model.to_empty(device='cpu') and initialise or load it"
        )
    if tensor.is_quantized:
        raise ScenarioError(f"{name} is quantised; give the store numbers: dequantize()")


def refuse_unless_float32_holds(name: str, tensor: Tensor, cure: str) -> None:
    """Raise ``ScenarioError`` if the tensor has no numbers here, or (with ``cure``) if float32 cannot hold them."""
    refuse_without_numbers(name, tensor)
    if tensor.dtype in _WIDER:
        kind = str(tensor.dtype).removeprefix("torch.")
        raise ScenarioError(f"{name} is {kind}, and what travels is float32, which would change its numbers; {cure}")
    if not (tensor.is_floating_point() or tensor.dtype in _SHORT):
        numbers = dense(tensor).detach().to(torch.int64)
        if len(large := numbers[(numbers > _LARGEST) | (numbers < -_LARGEST)]):
            raise ScenarioError(
                f"{name} holds the integer {large[0].item()}, and what travels is float32, which holds integers up to "
                f"{_LARGEST}; {cure}"
            )


def held_by_float32(tensor: Tensor) -> bool:
    """Return whether float32 holds all numbers of this tensor's type."""
    return tensor.dtype not in _WIDER and (tensor.is_floating_point() or tensor.dtype in _SHORT)


def to_wire(tensor: Tensor) -> Tensor:
    """Return a flat float32 copy in main memory: the numbers of ``tensor``, or its bits if float32 cannot hold them."""
    flat = tensor.detach().reshape(-1)
    if not held_by_float32(tensor):
        flat = flat.to("cpu").resolve_conj().contiguous().view(torch.int16)
    return flat.to("cpu", torch.float32, copy=True)


@torch.no_grad()
def from_wire(tensor: Tensor, value: Tensor) -> None:
    """Copy ``value``, which ``to_wire`` made from a tensor of the same type and size, into ``tensor``."""
    if not held_by_float32(tensor):
        value = value.to(torch.int16).view(tensor.dtype)
    tensor.copy_(value.view_as(tensor))
