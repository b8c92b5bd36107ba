"""How long codecs hold up a node's event loop: encodings and decodings of a large tensor, as a node does them.

Beside them a task sleeps for a millisecond, again and again; by how much it is late is the stall. Before codecs had a
thread of their own, the longest stall was the longest encoding. The first row is without a codec: how late others' work
on this machine makes a task. A codec's thread that others keep from its core may hold the interpreter's lock meanwhile,
so measure on a quiet machine.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Iterator

import torch

from analysis.benchmarks.harness import Benchmark, Row, listed
from testbed.codec.base import Codec
from testbed.codec.options import CODECS
from testbed.codec.table import make_codec
from testbed.realtime.processor import Processor, Tokens

IDLE = "idle"
BOUND_S = 5e-3  # of the 99th percentile
_TICK_S = 1e-3
_KEY = 0


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """Yield one row per codec."""
    torch.set_num_threads(1)
    for kind in (IDLE, *options.codec):
        found = _idle() if kind == IDLE else _watched(kind, options.elements, options.repeats)
        busy_s, late_s = asyncio.run(found)
        if not late_s:
            continue  # it does nothing with a tensor
        late_s.sort()
        p99_s = late_s[int(0.99 * (len(late_s) - 1))]
        yield {
            "codec": kind, "elements": options.elements, "coding_s": busy_s, "median_s": statistics.median(late_s),
            "p99_s": p99_s, "longest_s": late_s[-1], "ok": kind == IDLE or p99_s <= BOUND_S,
        }  # fmt: skip


async def _idle() -> tuple[float, list[float]]:
    late_s: list[float] = []
    ticking = asyncio.get_running_loop().create_task(_tick(late_s))
    await asyncio.sleep(1.0)
    ticking.cancel()
    return 0.0, late_s


async def _watched(kind: str, elements: int, repeats: int) -> tuple[float, list[float]]:
    """Return the seconds of a round's coding, and by how much each tick was late."""
    processor = Processor(Tokens.make(1), 60.0)
    child, server = make_codec(kind, {}, 2, 2), make_codec(kind, {}, 2, 2)
    tensor = torch.randn(elements)
    for end in (child, server):
        end.begin(_KEY, tensor)
    late_s: list[float] = []
    ticking = asyncio.get_running_loop().create_task(_tick(late_s))
    begin_s = time.perf_counter()
    for _ in range(repeats):
        parts = await _coded(processor, child, "encode", elements, tensor)
        await _coded(processor, server, "decode", elements, parts, elements)
        parts = await _coded(processor, server, "encode_value", elements, tensor)
        await _coded(processor, child, "decode_value", elements, parts, elements)
    busy_s = (time.perf_counter() - begin_s) / repeats
    ticking.cancel()
    processor.close()
    return busy_s, late_s


async def _coded(processor: Processor, codec: Codec, operation: str, elements: int, *arguments: object) -> object:
    function, cost = getattr(codec, operation), codec.cost(operation, elements)
    if cost is None:
        return function(_KEY, *arguments)
    return (await processor.code(cost.row, elements, lambda: function(_KEY, *arguments)))[0]


async def _tick(late_s: list[float]) -> None:
    while True:
        begin_s = time.perf_counter()
        await asyncio.sleep(_TICK_S)
        late_s.append(time.perf_counter() - begin_s - _TICK_S)


BENCHMARK = Benchmark(
    measure=measure,
    arguments={
        "--codec": {"type": listed(str), "default": tuple(CODECS), "help": "codecs (default: all)"},
        "--elements": {"type": int, "default": 25_000_000, "help": "of the tensor (default: 25 000 000)"},
        "--repeats": {"type": int, "default": 3, "help": "rounds of coding (default: 3)"},
    },
)
