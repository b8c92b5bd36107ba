"""What codecs and optimizers cost on this machine: the rows of a table of costs (``testbed.costs``).

A codec's or optimizer's row has three numbers. ``call_s`` is measured on small tensors. ``payload_byte_s`` is the
difference between two ratios of a codec that sends a share of the elements. ``element_s`` is the rest, on a large
tensor. All are medians of several calls on one core.

As in a run, there is other work between two calls: without it, a call with a small tensor would be several times
faster. Codecs encode eight small tensors one after the other, about as many as a model has, because the first of them
takes longer than the others. Codecs whose keys are cut by default are measured on slices, with the work of one slice
between two calls: in a run one slice follows another, so their code stays in the caches. Sums and copies have a time
for each byte that they read. If the rows are measured in the kernel of exact runs, they are the costs of such runs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from statistics import median
from typing import Any

import torch
from torch import Tensor

from testbed import buffers
from testbed.codec import fourbit
from testbed.codec.base import Codec
from testbed.codec.on_device import OnDevice
from testbed.codec.options import CODECS
from testbed.codec.table import make_codec
from testbed.costs import COPY, DECODE, DECODE_VALUE, ENCODE, ENCODE_VALUE, SUM, Row
from testbed.devices.accelerator import CPU, accelerator_of
from testbed.engine.aggregation import sum_in_order
from testbed.key_shape import MATRIX, KeyShape
from testbed.policy.order.fifo import MOST_BYTES
from testbed.policy.shard.slices import ELEMENT_BYTES
from testbed.realtime.cores import processor_clock
from testbed.training.optimizers import KeyOptimizer
from testbed.training.options import OPTIMIZERS

SMALL = 2_000
SMALL_KEYS = 8
SLICE = MOST_BYTES // ELEMENT_BYTES
LARGE = 1 << 24
_RATIOS = (0.01, 0.1)
_MEMBERS = 4
_MATRIX = 1 << 18  # elements
_OTHER = 1 << 23  # elements of the work between two calls: more than the caches hold
Seconds = dict[str, tuple[float, int]]  # by row: time of a call (s), and bytes of its payload
Calls = dict[str, list[tuple[float, int]]]


def measure(large: int = LARGE, repeats: int = 3, device: torch.device = CPU) -> dict[str, Row]:
    """Return the rows of all shipped codecs, optimizers and memory operations; on a GPU, only those of the codecs.

    On a GPU, the times include the copies between the GPU and main memory.
    """
    if device.type != CPU.type:
        return _on_gpu(large, repeats, device)
    rows: dict[str, Row] = {}
    for kind, variant in _variants():
        size = min(large, SLICE) if _is_cut(kind) else large
        small = _codec(kind, variant, SMALL, repeats * 3, SMALL_KEYS)
        big = _codec(kind, variant, size, repeats, large // size)
        more: Seconds = {}
        if "ratio" in _option_names(kind):
            more = _codec(kind, {**variant, "ratio": _RATIOS[1], "pull_ratio": _RATIOS[1]}, size, repeats)
        for row in big:
            rows.setdefault(row, _row(small[row], big[row], more.get(row), size))
    return rows | _optimizers(large, repeats) | _blocks(large, repeats) | _memory(large, repeats)


def _on_gpu(large: int, repeats: int, device: torch.device) -> dict[str, Row]:
    rows: dict[str, Row] = {}
    for kind, variant in _variants():
        small = _codec(kind, variant, SMALL, repeats * 3, SMALL_KEYS, device)
        big = _codec(kind, variant, large, repeats, device=device)
        for row in big:
            rows.setdefault(row, _row(small[row], big[row], None, large))
    return rows


def _variants() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield kinds of codecs with options that together cover every row of costs."""
    for kind in CODECS:
        names = _option_names(kind)
        if "pull" not in names:
            yield kind, {}
            continue
        ratios: dict[str, Any] = {name: _RATIOS[0] for name in ("ratio", "pull_ratio") if name in names}
        for pull in names["pull"]:
            yield kind, {"pull": pull, **ratios}
        if "selector" in names:
            yield kind, {"pull": "dense", "ratio": _RATIOS[0], "selector": "exact"}


def _is_cut(kind: str) -> bool:
    return CODECS[kind].dense or CODECS[kind].elementwise


def _option_names(kind: str) -> dict[str, tuple[str, ...]]:
    """Return the options of a codec, each with its choices; empty if it has none."""
    return {field.name: field.metadata.get("choices", ()) for field in fields(CODECS[kind])}  # type: ignore[arg-type]


def _codec(
    kind: str, options: Mapping[str, Any], size: int, repeats: int, keys: int = 1, device: torch.device = CPU
) -> Seconds:
    """Return the times of a codec's operations that have costs, as a child and a server call them in each round."""
    accelerator = accelerator_of(device)
    made = [make_codec(kind, dict(options), 2, 2) for _ in range(2)]
    child, server = (OnDevice(each, accelerator) if accelerator else each for each in made)
    generator = torch.Generator().manual_seed(0)
    gradients = [torch.split(torch.randn(size * keys, generator=generator) * 1e-2, size) for _ in range(2)]
    values: Sequence[Tensor] = torch.split(torch.randn(size * keys, generator=generator), size)
    if accelerator:
        gradients = [accelerator.to_device(each) for each in gradients]
        values = accelerator.to_device(tuple(values))
    for end in (child, server):
        for key, value in enumerate(values):
            if CODECS[kind].by_shape:
                end.declare(key, _square(size))
            end.begin(key, value)
    clock = _Clock({}, SLICE if _is_cut(kind) else _OTHER)
    for number in range(repeats + 1):
        if number == 1:
            clock.found.clear()  # the first calls allocated memory
        pushed = list(enumerate(gradients[number % 2]))
        payloads = clock.timed(child, ENCODE, size, pushed)
        contributions = clock.timed(server, DECODE, size, payloads)
        # a reply is the model, in which members of a sparse codec change few elements; or it is their contributions
        if CODECS[kind].sparse:
            changes = [sum(torch.roll(each, member) for member in range(_MEMBERS)) for _, each in contributions]
        else:
            changes = [gradient for _, gradient in pushed]
        values = [value + change for value, change in zip(values, changes, strict=True)]
        if accelerator:
            accelerator.timed(lambda: None)
        sent = contributions if options.get("pull") == "sparse-sum" else list(enumerate(values))
        payloads = clock.timed(server, ENCODE_VALUE, size, sent)
        clock.timed(child, DECODE_VALUE, size, payloads)
    return {row: (median(seconds for seconds, _ in calls), calls[-1][1]) for row, calls in clock.found.items()}


@dataclass(frozen=True, slots=True)
class _Clock:
    """Measures calls. ``found``: their times and payload sizes; ``other``: elements of the work between two calls."""

    found: Calls
    other: int

    def timed(self, codec: Codec, operation: str, size: int, contents: list[tuple[int, Any]]) -> list[tuple[int, Any]]:
        """Apply ``operation`` to the tensor or payload of each key, note the mean time, and return the results."""
        decodes = operation in (DECODE, DECODE_VALUE)
        method = getattr(codec, operation)
        # on a GPU, measure the wall-clock time until the work is done; on a core, its processor time
        clock = time.perf_counter if isinstance(codec, OnDevice) else processor_clock()
        results: list[tuple[int, Any]] = []
        spent_s = 0.0
        for key, content in contents:
            _other_work(self.other)
            begin_s = clock()
            results.append((key, method(key, content, size) if decodes else method(key, content)))
            spent_s += (clock() - begin_s) / len(contents)
        cost = codec.cost(operation, size)
        if cost is not None:
            payload = sum(part.nbytes for part in (contents if decodes else results)[0][1])
            self.found.setdefault(cost.row, []).append((spent_s, payload))
        return results


def _square(size: int) -> KeyShape:
    """Return the shape of a matrix with ``size`` elements that is as square as possible."""
    rows = next(each for each in range(math.isqrt(size), 0, -1) if size % each == 0)
    return KeyShape((rows, size // rows), MATRIX)


def _row(small: tuple[float, int], large: tuple[float, int], more: tuple[float, int] | None, size: int) -> Row:
    byte_s = 0.0
    if more is not None and more[1] > 2 * large[1]:
        byte_s = max(0.0, (more[0] - large[0]) / (more[1] - large[1]))
    call_s = max(0.0, small[0] - small[1] * byte_s)
    return Row(call_s, max(0.0, large[0] - call_s - large[1] * byte_s) / size, byte_s)


def _optimizers(large: int, repeats: int) -> dict[str, Row]:
    """Return the rows of all optimizers."""
    found: dict[str, Row] = {}
    for kind in OPTIMIZERS:
        momenta: list[dict[str, Any]] = [{}]
        if "momentum" in {field.name for field in fields(OPTIMIZERS[kind])}:
            momenta = [{"momentum": 0.0}, {"momentum": 0.9}]
        # the time of matrix products per element grows with the number of rows, so measure a matrix of usual size
        most = min(large, _MATRIX) if OPTIMIZERS[kind].by_shape else large
        for options in momenta:
            row, small_s = _step(kind, options, SMALL, repeats * 3)
            found[row] = Row(small_s, max(0.0, _step(kind, options, most, repeats)[1] - small_s) / most, 0.0)
    return found


def _step(kind: str, options: dict[str, Any], size: int, repeats: int) -> tuple[str, float]:
    optimizer = KeyOptimizer(kind, options, torch.randn(size), _square(size))
    gradient = torch.randn(size) * 1e-3

    def step() -> None:
        optimizer.step(gradient)
        buffers.clone(optimizer.value)  # as a server does before it sends the value

    step()
    median_s = _seconds(repeats, step)
    assert optimizer.cost is not None
    return optimizer.cost.row, median_s


def _blocks(large: int, repeats: int) -> dict[str, Row]:
    """Return the rows for encoding and decoding blocks in four bits."""

    def seconds(size: int, times: int) -> tuple[float, float]:
        tensor = torch.randn(size)
        encoded = fourbit.encode(tensor)
        return _seconds(times, lambda: fourbit.encode(tensor)), _seconds(times, lambda: fourbit.decode(*encoded, size))

    small = seconds(SMALL, repeats * 3)
    big = seconds(large, repeats)
    return {
        f"blocks {operation}": Row(call_s, max(0.0, large_s - call_s) / large, 0.0)
        for operation, call_s, large_s in zip((ENCODE, DECODE), small, big, strict=True)
    }


def _seconds(repeats: int, function: Callable[[], object]) -> float:
    """Return the median processor time of a call (s), with other work between the calls."""
    clock = processor_clock()
    found_s = []
    for _ in range(repeats):
        _other_work()
        begin_s = clock()
        function()
        found_s.append(clock() - begin_s)
    return median(found_s)


@cache
def _other_numbers() -> Tensor:
    return torch.zeros(_OTHER)


def _other_work(elements: int = _OTHER) -> None:
    _other_numbers()[:elements].add_(1.0)


def _memory(large: int, repeats: int) -> dict[str, Row]:
    """Return the rows for the sum of three contributions and the copy of a tensor."""
    read_bytes = {SUM: 3 * ELEMENT_BYTES * large, COPY: ELEMENT_BYTES * large}

    def seconds(size: int, times: int) -> dict[str, float]:
        tensors = [torch.randn(size) for _ in range(3)]
        sum_in_order(tensors)  # allocates the memory that the calls below reuse
        return {
            SUM: _seconds(times, lambda: sum_in_order(tensors)),
            COPY: _seconds(times, lambda: buffers.clone(tensors[0])),
        }

    small = seconds(SMALL, repeats * 3)
    big = seconds(large, repeats)
    return {name: Row(small[name], 0.0, max(0.0, big[name] - small[name]) / read_bytes[name]) for name in small}
