"""``pull: changed``: the child holds the server's value to the bit, and only what has changed comes down."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from testbed.codec.base import Codec
from testbed.codec.table import make_codec
from tests.for_each import for_each

KEY = 3
SIZE = 1000
KINDS: list[tuple[str, dict[str, Any]]] = [
    ("topk", {"ratio": 0.05, "bound": 2, "pull": "changed"}),
    ("sparseloco", {"chunk": 100, "k": 5, "pull": "changed"}),
]


def numbers(seed: int) -> Tensor:
    return torch.randn(SIZE, generator=torch.Generator().manual_seed(seed))


def ends(kind: str, options: dict[str, Any], first: Tensor, number: int = 2) -> list[Codec]:
    made = [make_codec(kind, options, 2, 3) for _ in range(number)]
    for end in made:
        end.begin(KEY, first)
    return made


def with_changes(value: Tensor, places: int, seed: int) -> Tensor:
    changed = value.clone()
    changed[torch.randperm(SIZE, generator=torch.Generator().manual_seed(seed))[:places]] += 1
    return changed


@for_each(("kind", "options"), KINDS)
@for_each("places", [0, 1, 150, 499, 500, SIZE])
def test_the_child_holds_the_value_and_few_bytes_come_down(kind: str, options: dict[str, Any], places: int) -> None:
    value = numbers(0)
    child, server = ends(kind, options, value)
    for round_ in range(3):
        value = with_changes(value, places, round_)
        parts = server.encode_value(KEY, value)
        assert sum(part.nbytes for part in parts) == min(8 * places, 4 * SIZE)
        assert torch.equal(child.decode_value(KEY, parts, SIZE), value)


@for_each(("kind", "options"), KINDS)
def test_a_value_that_the_optimizer_changes_in_place_is_compared_with_what_was_sent(
    kind: str, options: dict[str, Any]
) -> None:
    value = numbers(0)
    (child,) = ends(kind, options, value.clone(), number=1)  # as in another process
    (server,) = ends(kind, options, value, number=1)
    value[:10] -= 0.5
    assert torch.equal(child.decode_value(KEY, server.encode_value(KEY, value), SIZE), value)


@for_each(("kind", "options"), KINDS)
def test_children_that_were_sent_the_same_are_sent_one_payload(kind: str, options: dict[str, Any]) -> None:
    first = numbers(0)
    one, other, third = ends(kind, options, first, number=3)
    sent = with_changes(first, 100, 1)
    other.follow_value(KEY, sent, one.encode_value(KEY, sent))
    third.encode_value(KEY, with_changes(first, 100, 2))
    assert one.value_state(KEY, SIZE) == other.value_state(KEY, SIZE) != third.value_state(KEY, SIZE)
    loaded = ends(kind, options, first, number=3)
    for end, kept in zip(loaded, (one, other, third), strict=True):
        end.load_state(kept.state())
    states = [end.value_state(KEY, SIZE) for end in loaded]
    assert states[0] == states[1] != states[2]
    following = with_changes(sent, 30, 3)
    assert [part.tolist() for part in loaded[0].encode_value(KEY, following)] == [
        part.tolist() for part in one.encode_value(KEY, following)
    ]


@for_each(("kind", "options"), KINDS)
def test_not_a_number_arrives_and_is_sent_once(kind: str, options: dict[str, Any]) -> None:
    value = numbers(0)
    child, server = ends(kind, options, value)
    value = value.clone()
    value[7] = float("nan")
    assert child.decode_value(KEY, server.encode_value(KEY, value), SIZE)[7].isnan()
    assert server.encode_value(KEY, value)[0].numel() == 0


@for_each(("kind", "options"), KINDS)
def test_without_numbers_all_contributions_change_other_elements(kind: str, options: dict[str, Any]) -> None:
    value = torch.empty(SIZE, device="meta")
    child, server = ends(kind, options, value)
    assert server.encode_value(KEY, value)[0].numel() == SIZE, "no contribution has been decoded yet"
    server.decode(KEY, child.encode(KEY, torch.empty(SIZE, device="meta")), SIZE)
    parts = server.encode_value(KEY, value)
    assert [part.numel() for part in parts] == [150, 150], "three contributors, of 50 elements each"
    assert child.decode_value(KEY, parts, SIZE).numel() == SIZE


@for_each(("kind", "options"), KINDS)
def test_changes_before_the_first_value_are_refused(kind: str, options: dict[str, Any]) -> None:
    child = make_codec(kind, options, 2, 3)
    (server,) = ends(kind, options, numbers(0), number=1)
    with pytest.raises(ValueError, match="before its first value"):
        child.decode_value(KEY, server.encode_value(KEY, with_changes(numbers(0), 10, 1)), SIZE)
