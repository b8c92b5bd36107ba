"""Tables by rows: what travels, to the byte; what is decoded, to the bit; what cannot have come from the other end."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from testbed.codec.rows import TableCodec, asked_by
from testbed.codec.table import make_codec
from tests.for_each import for_each

ROWS, WIDTH = 10, 4
SIZE = ROWS * WIDTH
KEY = 3


def ends(kind: str = "none") -> tuple[TableCodec, TableCodec]:
    """Child and server, after the first value, which is 0, 1, 2, …"""
    child, server = (TableCodec(make_codec(kind, {}), WIDTH) for _ in "cs")
    child.begin(KEY, torch.arange(SIZE, dtype=torch.float32))
    return child, server


def contribution(*rows: int) -> Tensor:
    table = torch.zeros(ROWS, WIDTH)
    for row in rows:
        table[row] = torch.arange(1, WIDTH + 1) * (row + 1)
    return table.flatten()


def rows(*numbers: int) -> Tensor:
    return torch.tensor(numbers, dtype=torch.int64)


def size_bytes(parts: tuple[Tensor, ...]) -> int:
    return sum(part.nbytes for part in parts)


@for_each(("kind", "element_bytes"), [("none", 4), ("fp16", 2)])
def test_a_round_takes_the_bytes_of_its_rows(kind: str, element_bytes: int) -> None:
    child, server = ends(kind)
    child.asked = rows(1, 2, 9)
    up = child.encode(KEY, contribution(0, 9))
    assert size_bytes(up) == 4 * 3 + 4 * 2 + element_bytes * 2 * WIDTH
    assert torch.equal(server.decode(KEY, up, SIZE), contribution(0, 9))
    value = torch.arange(SIZE, dtype=torch.float32) + 100
    down = server.encode_value(KEY, value)
    assert size_bytes(down) == element_bytes * 3 * WIDTH
    expected = torch.arange(SIZE, dtype=torch.float32).view(ROWS, WIDTH)
    expected[rows(1, 2, 9)] += 100
    assert torch.equal(child.decode_value(KEY, down, SIZE), expected.flatten())


@for_each("number", [math.nan, math.inf, -math.inf, 1e-45, -1e-45])
def test_a_row_of_any_number_but_zero_is_sent(number: float) -> None:
    child, server = ends()
    child.asked = rows(0)
    table = contribution()
    table[WIDTH + 1], table[4 * WIDTH : 5 * WIDTH] = number, torch.tensor([1.0, -1.0, 2.0, -2.0])
    decoded = server.decode(KEY, child.encode(KEY, table), SIZE)
    assert torch.equal(decoded.view(torch.int32), table.view(torch.int32))


@given(st.lists(st.tuples(st.integers(0, ROWS - 1), st.floats(-1e3, 1e3, width=32)), max_size=8))
def test_contributions_come_through_with_their_bits(changes: list[tuple[int, float]]) -> None:
    child, server = ends()
    child.asked = rows(0)
    table = torch.zeros(ROWS, WIDTH)
    for row, number in changes:
        table[row, row % WIDTH] = number
    parts = child.encode(KEY, table.flatten())
    assert torch.equal(server.decode(KEY, parts, SIZE), table.flatten())
    assert len(parts[1]) == int((table != 0).any(1).sum())


def test_servers_ask_for_the_rows_of_all_children() -> None:
    tables = [TableCodec(make_codec("none", {}), WIDTH) for _ in range(3)]
    for table, asked in zip(tables, (rows(1, 4), rows(), rows(0, 4, 7)), strict=True):
        table.asked = asked
    union = asked_by(tables)
    assert union is not None and union.tolist() == [0, 1, 4, 7]
    tables[1].asked = None
    assert asked_by(tables) is None


def int32(*numbers: int) -> Tensor:
    return torch.tensor(numbers, dtype=torch.int32)


@for_each(
    ("parts", "message"),
    [
        ((int32(1),), "the rows asked for and the rows sent"),
        ((torch.ones(1), int32(1), torch.ones(WIDTH)), "int32"),
        ((int32(1), int32(2, 1), torch.ones(2 * WIDTH)), "do not increase"),
        ((int32(1), int32(ROWS), torch.ones(WIDTH)), "outside of 10"),
        ((int32(-2), int32(1), torch.ones(WIDTH)), "outside of 10"),
        ((int32(-1, 2), int32(1), torch.ones(WIDTH)), "outside of 10"),
        ((int32(1), int32(1), torch.ones(WIDTH + 1)), "expected 4 elements"),
        ((int32(1), int32(1)), "expected 1 part"),
        ((int32(1), int32(), torch.ones(WIDTH)), "and no row"),
    ],
)
def test_what_cannot_have_come_from_a_child_is_refused(parts: tuple[Tensor, ...], message: str) -> None:
    _, server = ends()
    with pytest.raises(ValueError, match=message):
        server.decode(KEY, parts, SIZE)


def test_the_childs_end_goes_on_from_its_state() -> None:
    child, server = ends()
    child.asked = rows(2)
    server.decode(KEY, child.encode(KEY, contribution(2)), SIZE)
    child.decode_value(KEY, server.encode_value(KEY, torch.zeros(SIZE)), SIZE)
    again, _ = ends()
    again.load_state(child.state())
    for end in (child, again):
        end.asked = rows(3)
    down = (torch.full((WIDTH,), 7.0),)
    assert torch.equal(child.decode_value(KEY, down, SIZE), again.decode_value(KEY, down, SIZE))
    assert server.state() == {}
