"""What a run says of NCCL's bytes, without a GPU: a library that does nothing stands in its place."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch

from testbed.execution.distributed.torch_group import Nccl
from tests.for_each import for_each

NAMES = ("a/worker0", "a/worker1", "a/worker2", "a/worker3")
WHOLE, PART = 4 * 1000, 4 * 250  # bytes
OPERATIONS: dict[str, Callable[[Nccl, torch.Tensor, torch.Tensor], Any]] = {
    "sum": lambda group, whole, part: group.start(whole),
    "reduce": lambda group, whole, part: group.start_reduce(whole),
    "broadcast": lambda group, whole, part: group.start_broadcast(whole),
    "reduce-scatter": lambda group, whole, part: group.start_reduce_scatter(part, whole),
    "all-gather": lambda group, whole, part: group.start_all_gather(whole, part),
}


@for_each(
    ("operation", "received"),
    [
        ("sum", [("a/worker3", 6 * PART), ("a/worker0", 6 * PART), ("a/worker1", 6 * PART), ("a/worker2", 6 * PART)]),
        ("reduce", [("a/worker1", WHOLE), ("a/worker2", WHOLE), ("a/worker3", WHOLE), None]),
        ("broadcast", [None, ("a/worker0", WHOLE), ("a/worker1", WHOLE), ("a/worker2", WHOLE)]),
        ("reduce-scatter", [(f"a/worker{rank}", 3 * PART) for rank in (3, 0, 1, 2)]),
        ("all-gather", [(f"a/worker{rank}", 3 * PART) for rank in (3, 0, 1, 2)]),
    ],
)
def test_each_worker_receives_what_a_ring_moves(
    operation: str, received: list[tuple[str, int] | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    library = MagicMock()

    async def bytes_at(rank: int) -> dict[str, int]:
        group = Nccl(library, None, torch.device("cpu"), NAMES, rank)
        await OPERATIONS[operation](group, torch.zeros(1000), torch.zeros(250))
        found = group.received_bytes()
        assert group.received_bytes() == {}
        return found

    for rank, expected in enumerate(received):
        assert asyncio.run(bytes_at(rank)) == (dict([expected]) if expected else {})
