"""How the tensors of a node reach a GPU and come back, and how its work there is timed.

Three rules keep streams in order without a wait between any two of them:

* What ``timed`` returns is complete: it waits, on an event, for all that the function has begun on the GPU. So work
  that is handed from one thread to another, or to the network, never meets a tensor that is still being computed.
* Encoding, decoding and copies run on a stream of their own beside that of training, and evaluation on a third.
* A payload leaves in one copy: its parts are packed on the GPU, copied to page-locked memory, and an event releases
  them. PyTorch's allocator of such memory hands a buffer out again when no message refers to it any more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
Parts = tuple[Tensor, ...]

CPU = torch.device("cpu")
CODING = "coding"
EVALUATION = "evaluation"
_cuda: Any = torch.cuda  # its stubs are incomplete
_ALIGNMENT = 16  # bytes: of each part in a packed payload


class Accelerator:
    """A GPU as one process uses it. Its CUDA context comes with the first tensor, in the process that computes."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._streams: dict[str, Any] = {}

    # ---- what differs from device to device ---------------------------------------------------------------------

    def event(self) -> Any:
        """Return a new event that notes its time. Threads that wait for it sleep."""
        return _cuda.Event(enable_timing=True, blocking=True)

    @contextmanager
    def on(self, stream: str) -> Iterator[None]:
        """Let the calls of this thread run on the stream of that name."""
        if stream not in self._streams:
            self._streams[stream] = _cuda.Stream(self.device)
        with _cuda.stream(self._streams[stream]):
            yield

    def locked(self, size: int, dtype: torch.dtype) -> Tensor:
        """Return page-locked memory on the host, which the GPU reads and writes by itself."""
        return torch.empty(size, dtype=dtype, pin_memory=True)

    # ---- work and copies ----------------------------------------------------------------------------------------

    def timed(self, function: Callable[[], T]) -> tuple[T, float]:
        """Return the value of ``function``, complete, and the seconds between two events around it."""
        with _cuda.device(self.device) if self.device.type == "cuda" else nullcontext():
            begin = self.event()
            end = self.event()
            begin.record()
            value = function()
            end.record()
            end.synchronize()
        return value, begin.elapsed_time(end) / 1e3

    def to_host(self, parts: Parts) -> Parts:
        """Return the payload in page-locked memory, by one copy."""
        there = [part for part in parts if not part.is_cpu]
        if not there:
            return parts
        packed = _packed(there)
        copy = self.locked(packed.numel(), packed.dtype)
        copy.copy_(packed, non_blocking=True)
        self._wait()
        found = iter(_unpacked(copy, there))
        return tuple(part if part.is_cpu else next(found) for part in parts)

    def to_device(self, parts: Parts) -> Parts:
        """Return the payload on the GPU, by one copy."""
        here = [part for part in parts if part.is_cpu]
        if not here:
            return parts
        packed = _packed(here)
        staged = self.locked(packed.numel(), packed.dtype)
        staged.copy_(packed)
        copy = staged.to(self.device, non_blocking=True)
        self._wait()  # until then the page-locked memory is read
        found = iter(_unpacked(copy, here))
        return tuple(next(found) if part.is_cpu else part for part in parts)

    def _wait(self) -> None:
        copied = self.event()
        copied.record()
        copied.synchronize()


def _packed(parts: Sequence[Tensor]) -> Tensor:
    """Return one part flat, or the bytes of several in one tensor, each at a multiple of ``_ALIGNMENT``."""
    if len(parts) == 1:
        return parts[0].contiguous().reshape(-1)
    pieces: list[Tensor] = []
    for part in parts:
        data = part.contiguous().reshape(-1).view(torch.uint8)
        pieces.append(data)
        if padding := -data.numel() % _ALIGNMENT:
            pieces.append(torch.zeros(padding, dtype=torch.uint8, device=part.device))
    return torch.cat(pieces)


def _unpacked(packed: Tensor, like: Sequence[Tensor]) -> Iterator[Tensor]:
    """Yield views of the parts that ``_packed`` has joined, or of the only one."""
    if len(like) == 1:
        yield packed.view(like[0].shape)
        return
    start = 0
    for part in like:
        yield packed[start : start + part.nbytes].view(part.dtype).view(part.shape)
        start += part.nbytes + -part.nbytes % _ALIGNMENT


_used: dict[torch.device, Accelerator] = {}
make_accelerator: Callable[[torch.device], Accelerator] = Accelerator
type_of_gpus = "cuda"  # torch's name for them


def torch_device(kind: str, index: int = 0) -> torch.device:
    """Return the processor, or the GPU of that number. Nothing is initialised by that."""
    return CPU if kind == "cpu" else torch.device(type_of_gpus, index)


def accelerator_of(device: torch.device) -> Accelerator | None:
    """Return the accelerator that is ``device``; ``None`` for the host, and for sizes without numbers."""
    if device.type in ("cpu", "meta"):
        return None
    if device not in _used:
        _used[device] = make_accelerator(device)
    return _used[device]


def timed_on_host(function: Callable[[], T]) -> tuple[T, float]:
    """Return the value of ``function``, and the wall-clock seconds that it took."""
    start_s = time.perf_counter()
    return function(), time.perf_counter() - start_s
