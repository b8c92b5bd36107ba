"""Sends embedding tables by rows: up only the non-zero rows, down only the rows that the child has asked for.

A table is a key whose elements form rows of equal width; a batch needs few of the rows. Each contribution names the
rows that the next batch needs (``asked``), and the reply has the values of these rows alone. This partial pull works as
``row_sparse_pull`` of MXNet's key-value store. Decoding gives a whole table at both ends: a contribution has zeros in
all other rows, and a value has the child's previous elements there. So sums and updates have the same bits as with
whole tables.

The parts of a contribution are the rows asked for, the rows sent (both int32 and ascending), and the elements of the
rows sent, encoded by another codec without memory. The parts of a value are the encoded elements of the rows asked for.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import torch
from torch import Tensor

from testbed.codec import pairs
from testbed.codec.base import Codec
from testbed.costs import ENCODE_VALUE, Cost, cost_of

_ALL = -1  # if this is the only row asked for, all rows are


class TableCodec(Codec):
    """One end of a connection for one table, with rows of ``width`` elements, which ``codec`` encodes.

    The child's end keeps the child's table.

    asked  the rows that the child asks for with its next contribution, or asked for with its last one; int64 and
           ascending; ``None``: all
    """

    has_memory = True
    cost_name = "rows"
    encode_s_per_element = 1.2e-9  # finding the rows that are not zero
    decode_s_per_element = 0.3e-9  # for a contribution: writing the zeros; for a value: copying the child's table
    gather_s_per_element = 0.2e-9  # gathering the rows asked for, if they are 2 % of all

    remembers = ("_held",)

    def __init__(self, codec: Codec, width: int) -> None:
        self._codec = codec
        self.width = width
        self._held: Tensor | None = None
        self.asked: Tensor | None = None

    def begin(self, wire_key: int, value: Tensor) -> None:
        self._held = value

    def encode(self, wire_key: int, tensor: Tensor) -> tuple[Tensor, ...]:
        table = tensor.view(-1, self.width)
        rows = table.abs().sum(dim=1).nonzero().flatten()  # faster than any(); the sum is 0 only for rows of zeros
        asked = torch.tensor([_ALL]) if self.asked is None else self.asked
        payload = self._codec.encode(wire_key, table[rows].flatten()) if rows.numel() else ()
        return asked.to(torch.int32), rows.to(torch.int32), *payload

    def decode(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        if len(parts) < 2 or any(part.dtype != torch.int32 or part.dim() != 1 for part in parts[:2]):
            raise ValueError("expected the rows asked for and the rows sent, int32, before the elements")
        asked, rows, *payload = parts
        count = size // self.width
        if asked.tolist() == [_ALL]:
            self.asked = None
        else:
            pairs.check_indices(asked, count)
            self.asked = asked.long()
        pairs.check_indices(rows, count)
        return self._placed(torch.zeros(size), rows.long(), self._decoded(self._codec.decode, wire_key, payload, rows))

    def encode_value(self, wire_key: int, value: Tensor) -> tuple[Tensor, ...]:
        if self.asked is None:
            return self._codec.encode_value(wire_key, value)
        rows = value.view(-1, self.width)[self.asked].flatten()
        return self._codec.encode_value(wire_key, rows) if rows.numel() else ()

    def decode_value(self, wire_key: int, parts: tuple[Tensor, ...], size: int) -> Tensor:
        if self.asked is None:
            self._held = self._codec.decode_value(wire_key, parts, size)
        else:
            assert self._held is not None, "the first value of a key comes before its rounds"
            rows = self._decoded(self._codec.decode_value, wire_key, parts, self.asked)
            self._held = self._placed(self._held.clone(), self.asked, rows)
        return self._held

    def _decoded(self, decode: Any, wire_key: int, parts: Iterable[Tensor], rows: Tensor) -> Tensor:
        """Return the decoded elements of ``rows``. Raise ``ValueError`` if there is a payload, but no row."""
        payload = tuple(parts)
        if not rows.numel():
            if payload:
                raise ValueError(f"{len(payload)} parts of elements, and no row")
            return torch.empty(0)
        elements: Tensor = decode(wire_key, payload, rows.numel() * self.width)
        return elements

    def _placed(self, table: Tensor, rows: Tensor, elements: Tensor) -> Tensor:
        """Write ``elements`` into ``rows`` of ``table``, and return the table."""
        table.view(-1, self.width).index_copy_(0, rows, elements.view(-1, self.width))
        return table

    def value_state(self, wire_key: int, size: int) -> Hashable:
        return None  # each child asks for rows of its own

    def cost(self, operation: str, size: int) -> Cost | None:
        """Return the cost of going through the whole table. The inner codec's work on a few rows is not counted."""
        if operation == ENCODE_VALUE:
            inner = self._codec.cost(operation, size)
            return inner and cost_of(self.cost_name, operation, self.gather_s_per_element)
        return super().cost(operation, size)


def asked_by(tables: Iterable[TableCodec]) -> Tensor | None:
    """Return the rows that any of these children asked for; ``None``: all."""
    asked = []
    for table in tables:
        if table.asked is None:
            return None
        asked.append(table.asked)
    rows: Tensor = torch.unique(torch.cat(asked))
    return rows
