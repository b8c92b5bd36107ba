"""How long codecs hold up a node's event loop: encodings and decodings of a large tensor, as a node does them.

Beside them a task sleeps for a millisecond, again and again; by how much it is late is the stall. Before codecs had a
thread of their own, the longest stall was the longest encoding. The first row is without a codec: how late others' work
on this machine makes a task. A codec's thread that others keep from its core may hold the interpreter's lock meanwhile;
the columns ``held`` leave out what the process's threads waited for a core, and so measure also on a busy machine.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from analysis.benchmarks.harness import Row, listed
from testbed.codec.base import Codec
from testbed.codec.options import CODECS
from testbed.codec.table import make_codec
from testbed.realtime.processor import Processor, Tokens

IDLE = "idle"
BOUND_S = 5e-3  # of the 99th percentile of ``held``
_TICK_S = 1e-3
_KEY = 0
Tick = tuple[float, float]
"""By how much a task woke up late (s), and what of it no thread of the process waited for a core."""


def measure(options: argparse.Namespace) -> Iterator[Row]:
    torch.set_num_threads(1)
    for kind in (IDLE, *options.codec):
        found = _idle() if kind == IDLE else _watched(kind, options.elements, options.repeats)
        busy_s, ticks = asyncio.run(found)
        if not ticks:
            continue  # it does nothing with a tensor
        late_s, held_s = (sorted(column) for column in zip(*ticks, strict=True))
        held_p99_s = _p99(held_s)
        yield {
            "codec": kind, "elements": options.elements, "coding_s": busy_s, "median_s": statistics.median(late_s),
            "p99_s": _p99(late_s), "longest_s": late_s[-1], "held_p99_s": held_p99_s, "held_longest_s": held_s[-1],
            "ok": held_p99_s <= BOUND_S,
        }  # fmt: skip


def _p99(ascending: list[float]) -> float:
    return ascending[int(0.99 * (len(ascending) - 1))]


async def _idle() -> tuple[float, list[Tick]]:
    ticks: list[Tick] = []
    ticking = asyncio.get_running_loop().create_task(_tick(ticks))
    await asyncio.sleep(1.0)
    ticking.cancel()
    return 0.0, ticks


async def _watched(kind: str, elements: int, repeats: int) -> tuple[float, list[Tick]]:
    """Return the seconds of a round's coding, and by how much each tick was late."""
    processor = Processor(Tokens.make(1), 60.0)
    child, server = make_codec(kind, {}, 2, 2), make_codec(kind, {}, 2, 2)
    tensor = torch.randn(elements)
    for end in (child, server):
        end.begin(_KEY, tensor)
    ticks: list[Tick] = []
    ticking = asyncio.get_running_loop().create_task(_tick(ticks))
    begin_s = time.perf_counter()
    for _ in range(repeats):
        parts = await _coded(processor, child, "encode", elements, tensor)
        await _coded(processor, server, "decode", elements, parts, elements)
        parts = await _coded(processor, server, "encode_value", elements, tensor)
        await _coded(processor, child, "decode_value", elements, parts, elements)
    busy_s = (time.perf_counter() - begin_s) / repeats
    ticking.cancel()
    processor.close()
    return busy_s, ticks


async def _coded(processor: Processor, codec: Codec, operation: str, elements: int, *arguments: object) -> object:
    function, cost = getattr(codec, operation), codec.cost(operation, elements)
    if cost is None:
        return function(_KEY, *arguments)
    return (await processor.code(cost.row, elements, lambda: function(_KEY, *arguments)))[0]


async def _tick(ticks: list[Tick]) -> None:
    while True:
        waited_s, begin_s = _waited_for_cores_s(), time.perf_counter()
        await asyncio.sleep(_TICK_S)
        late_s = time.perf_counter() - begin_s - _TICK_S
        ticks.append((late_s, max(0.0, late_s - (_waited_for_cores_s() - waited_s))))


def _waited_for_cores_s() -> float:
    """Return what the threads of this process have waited for a core so far."""
    threads = Path("/proc/self/task").glob("*/schedstat")
    return sum(int(each.read_text(encoding="ascii").split()[1]) for each in threads) / 1e9


ARGUMENTS = {
    "--codec": {"type": listed(str), "default": tuple(CODECS), "help": "codecs (default: all)"},
    "--elements": {"type": int, "default": 25_000_000, "help": "of the tensor (default: 25 000 000)"},
    "--repeats": {"type": int, "default": 3, "help": "rounds of coding (default: 3)"},
}
