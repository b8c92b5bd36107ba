"""A processor that stands in for a GPU: torch's device ``standin``, as strict as CUDA where CUDA is strict.

* One context a process: its first use in a process that was forked after a context was made fails, as CUDA's does.
* Memory of its own: tensors of ``standin`` and of the host never meet in an operation, and every copy between them is
  counted, with its bytes.
* Streams: an operation that reads what another stream is still computing fails, unless the host has waited for it.
* Asynchronous copies: page-locked memory holds garbage until the host has waited for an event after the copy.

Operations are those of the processor, so results have its bits.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils import backend_registration
from torch.utils._pytree import tree_map

from testbed.devices import accelerator
from testbed.devices.accelerator import Accelerator

NAME = "standin"
_GARBAGE = 0xA5
DEFAULT = "default"


@dataclass
class _Memory:
    """Numbers on the host, the stream that computes them, and as which of its operations."""

    storage: torch.UntypedStorage
    made: tuple[str, int]


@dataclass
class _State:
    """Of this process."""

    context: bool = False
    poisoned: bool = False
    copies: Counter[tuple[str, int]] = field(default_factory=Counter)  # direction and bytes: how many
    done: Counter[str] = field(default_factory=Counter)  # by stream: operations so far
    waited: Counter[str] = field(default_factory=Counter)  # by stream: those that the host has waited for
    # by the address of the storage, which views and what autograd saves share
    memory: dict[int, _Memory] = field(default_factory=dict)
    landing: list[tuple[tuple[str, int], Tensor, Tensor]] = field(default_factory=list)  # copies under way


_state = _State()
_here = threading.local()
_library: list[torch.library.Library] = []


def _after_fork() -> None:
    _state.poisoned = _state.poisoned or _state.context


def _stream() -> str:
    return getattr(_here, "stream", DEFAULT)


def _begin() -> None:
    """Make the context, as the first use of a GPU does."""
    if _state.poisoned:
        raise RuntimeError(
            "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the "
            "'spawn' start method"
        )
    _state.context = True


def copies(direction: str, at_least: int = 0) -> list[int]:
    """Return the bytes of each copy in a direction (``to host`` or ``to device``) of so many bytes or more."""
    return sorted(
        size
        for (way, size), count in _state.copies.items()
        for _ in range(count)
        if way == direction and size >= at_least
    )


def forget() -> None:
    """Begin to count anew."""
    _state.copies.clear()


def _wrap(raw: Tensor) -> Tensor:
    """Return a tensor of the device, with its strides, that holds these numbers."""
    tensor: Tensor = torch._C._acc.create_empty_tensor(raw.shape, raw.dtype)  # type: ignore[attr-defined]
    _state.done[_stream()] += 1
    _state.memory[_place(tensor)] = _Memory(raw.untyped_storage(), (_stream(), _state.done[_stream()]))
    if raw.is_contiguous() and not raw.storage_offset():
        return tensor
    return _view(torch.ops.aten.as_strided.default, tensor, raw.shape, raw.stride(), raw.storage_offset())


def _view(op: Any, *args: Any, **kwargs: Any) -> Tensor:
    """Return a view: the form for tensors without numbers makes one of the same storage."""
    tensor: Tensor = op.redispatch(torch._C.DispatchKeySet(torch._C.DispatchKey.Meta), *args, **kwargs)
    return tensor


def _is_here(value: Any) -> bool:
    return isinstance(value, Tensor) and value.device.type == NAME


def _place(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _raw(tensor: Tensor) -> Tensor:
    storage = _state.memory[_place(tensor)].storage
    return torch.empty(0, dtype=tensor.dtype).set_(
        storage, tensor.storage_offset(), tuple(tensor.shape), tensor.stride()
    )


def _read(tensor: Tensor) -> Tensor:
    """Return the numbers of a tensor that this stream may read."""
    stream, number = _state.memory[_place(tensor)].made
    if stream != _stream() and number > _state.waited[stream]:
        raise RuntimeError(f"stream {_stream()} reads what stream {stream} is still computing")
    return _raw(tensor)


def _written(tensor: Tensor) -> None:
    _state.done[_stream()] += 1
    _state.memory[_place(tensor)].made = _stream(), _state.done[_stream()]


def _copy(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    """``aten::_copy_from``: from the host, to the host, or on the device."""
    if _is_here(source) and _is_here(target):
        _raw(target).copy_(_read(source))
        _written(target)
    elif _is_here(source):
        _state.copies["to host", target.nbytes] += 1
        raw = _read(source)
        if non_blocking and target.is_contiguous():
            target.view(-1).view(torch.uint8).fill_(_GARBAGE)
            _state.done[_stream()] += 1
            _state.landing.append(((_stream(), _state.done[_stream()]), target, raw.clone()))
        else:
            target.copy_(raw)
            _land()
    else:
        _state.copies["to device", target.nbytes] += 1
        _raw(target).copy_(source)
        _written(target)
    return target


def _land(stream: str | None = None, number: int = 0) -> None:
    """Let copies arrive: all, or those of a stream up to an operation."""
    left = []
    for when, target, raw in _state.landing:
        if stream is None or (when[0] == stream and when[1] <= number):
            target.copy_(raw)
        else:
            left.append((when, target, raw))
    _state.landing = left


def _convolution_backward(gradient: Tensor, inputs: Tensor, weight: Tensor, *others: Any) -> Any:
    return torch.ops.aten.convolution_backward.default(gradient, inputs, weight, [weight.shape[0]], *others)


_REPLACED: dict[str, Any] = {
    "aten::abs": torch.ops.aten.abs.default,  # torch's own form writes to an empty tensor, which it resizes
    "aten::convolution_overrideable": torch.ops.aten.convolution.default,
    "aten::convolution_backward_overrideable": _convolution_backward,
}


def _fallback(op: Any, *args: Any, **kwargs: Any) -> Any:
    _begin()
    name = op._schema.name
    if name == "aten::_copy_from":
        return _copy(*args, **kwargs)
    if name == "aten::_local_scalar_dense":
        _state.copies["to host", args[0].element_size()] += 1
        return _read(args[0]).item()
    if name == "aten::record_stream":
        return None

    def raw(value: Any) -> Any:
        if _is_here(value):
            return _read(value)
        if isinstance(value, Tensor) and value.dim() and not value.is_meta:
            raise RuntimeError(f"{name}: expected all tensors to be on one device, found {NAME} and {value.device}")
        return torch.device("cpu") if isinstance(value, torch.device) and value.type == NAME else value

    real = _REPLACED.get(name, op)
    wanted = [str(argument.type) for argument in op._schema.arguments]
    # a number in the place of a tensor comes as a number
    args = tuple(
        torch.tensor(arg) if type_ == "Tensor" and isinstance(arg, int | float) else arg
        for arg, type_ in zip(args, wanted, strict=False)
    )
    results = real(*tree_map(raw, args), **tree_map(raw, kwargs))
    if isinstance(results, Tensor | tuple | list):
        return _results(op, args, kwargs, results)
    return results


def _results(op: Any, args: Any, kwargs: Any, results: Any) -> Any:
    """Return the results as tensors of the device; those that an operation changes are its own arguments."""
    given = dict(zip((argument.name for argument in op._schema.arguments), args, strict=False)) | kwargs
    written = {
        alias: given[argument.name]
        for argument in op._schema.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
        for alias in argument.alias_info.before_set
        if argument.name in given
    }
    for tensor in written.values():
        for each in tensor if isinstance(tensor, list | tuple) else [tensor]:
            if _is_here(each):
                _written(each)
    many = isinstance(results, tuple | list)
    returned = []
    for result, about in zip(results if many else [results], _returns(op, results), strict=True):
        aliases = about.alias_info.before_set if about is not None and about.alias_info is not None else ()
        target = next((written[alias] for alias in aliases if alias in written), None)
        if _is_here(target) and target.shape != result.shape:
            raise RuntimeError(f"{op._schema.name} resizes its result: give it a form of its own in _REPLACED")
        returned.append(target if target is not None else _wrap(result) if isinstance(result, Tensor) else result)
    return type(results)(returned) if many else returned[0]


def _returns(op: Any, results: Any) -> list[Any]:
    count = len(results) if isinstance(results, tuple | list) else 1
    about = list(op._schema.returns)
    return about if len(about) == count else [None] * count


class _Event:
    """Notes how far its stream was."""

    def __init__(self) -> None:
        self._at = (DEFAULT, 0)
        self.recorded = False

    def record(self) -> None:
        self._at, self.recorded = (_stream(), _state.done[_stream()]), True

    def synchronize(self) -> None:
        assert self.recorded, "nobody has recorded the event"
        stream, number = self._at
        _state.waited[stream] = max(_state.waited[stream], number)
        _land(stream, number)

    def elapsed_time(self, end: _Event) -> float:
        assert self.recorded and end.recorded
        return 1.0


class StandInAccelerator(Accelerator):
    """The device as the product uses a GPU."""

    def event(self) -> Any:
        _begin()
        return _Event()

    @contextmanager
    def on(self, stream: str) -> Iterator[None]:
        before = _stream()
        _here.stream = stream
        try:
            yield
        finally:
            _here.stream = before

    def locked(self, size: int, dtype: torch.dtype) -> Tensor:
        return torch.empty(size, dtype=dtype)


_VIEWS = ("as_strided.default", "view.default", "view.dtype", "_reshape_alias.default", "unfold.default")


def register() -> None:
    """Add the device to torch, once a process."""
    if _library:
        return
    backend_registration._setup_privateuseone_for_python_backend(NAME)
    everything, views = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
    everything.fallback(_fallback, "PrivateUse1")
    for name in _VIEWS:
        packet, overload = name.split(".")
        op = getattr(getattr(torch.ops.aten, packet), overload)
        views.impl(name.removesuffix(".default"), partial(_view, op), "PrivateUse1")
    for name in _REPLACED:
        packet = name.removeprefix("aten::")
        views.impl(packet, partial(_fallback, getattr(torch.ops.aten, packet).default), "PrivateUse1")
    _library.extend((everything, views))
    os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def standing_in() -> Iterator[None]:
    """Let ``device: cuda`` be this device in the product, here and in processes forked from here."""
    register()
    before: tuple[str, Callable[[torch.device], Accelerator]]
    before = accelerator.type_of_gpus, accelerator.make_accelerator
    accelerator.type_of_gpus, accelerator.make_accelerator = NAME, StandInAccelerator
    known, counted = dict(accelerator._used), _state.context
    try:
        yield
    finally:
        accelerator.type_of_gpus, accelerator.make_accelerator = before
        accelerator._used.clear()
        accelerator._used.update(known)
        _state.context = counted
        forget()
