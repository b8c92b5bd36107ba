"""What a part declares to remember is in its state, and comes back from it, whatever kind it is of."""

from __future__ import annotations

import io
import json
import math
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor

from testbed.state import PartsByKey, Remembering


class Draws(Remembering):
    remembers = ("position",)

    def __init__(self) -> None:
        self.position = 0


class Part(Remembering):
    remembers = (
        "round",
        "rate",
        "name",
        "value",
        "first",
        "last",
        "residuals",
        "pieces",
        "sent",
        "made",
        "draws",
        "of_keys",
        "all",
    )

    def __init__(self) -> None:
        self.round = 0
        self.rate = 0.5
        self.name = ""
        self.value = torch.zeros(2)
        self.first: Tensor | None = None
        self.last: float | None = None
        self.residuals: dict[int, Tensor] = {}
        self.pieces: list[Tensor] = []
        self.sent: dict[tuple[str, str], tuple[float, int]] = {}
        self.made: dict[str, list[int]] = {}
        self.draws = Draws()
        self.of_keys = {"east/worker0": Draws(), "b": Draws()}
        self.all = [Draws(), Draws()]


def changed() -> Part:
    part = Part()
    part.round, part.rate, part.name = 3, 0.1 + 0.2, "a/b"
    part.value, part.first, part.last = torch.tensor([1.0, 2.0]), torch.ones(3), 2.5
    part.residuals = {7: torch.ones(2), 11: torch.zeros(1)}
    part.pieces = [torch.ones(number) for number in range(12)]
    part.sent = {("a", "b"): (0.1, 2)}
    part.made = {"a/b": [1, 2]}
    part.draws.position = 2**64 - 1
    part.of_keys["east/worker0"].position = 5
    part.all[1].position = 6
    return part


def plain(value: Any) -> Any:
    if isinstance(value, Remembering):
        return plain(vars(value))
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value.tolist() if isinstance(value, Tensor) else value


def test_a_part_takes_the_place_of_another() -> None:
    file = io.BytesIO()
    state = changed().state()
    assert all(isinstance(content, Tensor | int | float | str) for content in state.values())
    torch.save(state, file)
    file.seek(0)
    for kept in (state, torch.load(file, weights_only=True)):
        new = Part()
        new.load_state(kept)
        assert plain(new) == plain(changed())


def test_a_part_of_which_nothing_is_known_takes_the_place_of_another() -> None:
    new = changed()
    new.load_state(Part().state())
    assert plain(new) == plain(Part())


def test_without_a_state_a_part_stays_as_it_is() -> None:
    part = changed()
    part.load_state({})
    assert plain(part) == plain(changed())


def test_what_is_remembered_and_what_is_given_do_not_change_each_other() -> None:
    part = changed()
    state = part.state()
    other = Part()
    other.load_state(state)
    for each in (part, other):
        each.value.add_(1)
        each.residuals[7].add_(1)
        each.pieces[1].add_(1)
    again = Part()
    again.load_state(state)
    assert plain(again) == plain(changed())


def test_containers_come_back_with_infinity_and_numbers_of_numpy() -> None:
    part = Part()
    part.sent = {("a", "b"): (math.inf, 2), ("b", "a"): (-math.inf, 0), ("c", "a"): (numpy.float64(0.1), 1)}
    again = Part()
    again.load_state(part.state())
    assert again.sent == part.sent


def test_a_number_comes_back_that_is_infinite_and_the_state_can_be_written_as_json() -> None:
    part = Part()
    part.rate = -math.inf
    state = part.state()
    assert "Infinity" not in json.dumps({name: each for name, each in state.items() if not isinstance(each, Tensor)})
    again = Part()
    assert again.rate == 0.5
    again.load_state(state)
    assert again.rate == -math.inf


class Owner(Remembering):
    """Of parts that are made when they are needed: by itself, or by who needs them."""

    remembers = ("made", "given")

    def __init__(self) -> None:
        self.made: PartsByKey[tuple[str, int], Part] = PartsByKey(lambda key: Part())
        self.given: PartsByKey[str, Part] = PartsByKey()


def test_parts_that_are_not_made_yet_take_the_place_of_others_when_they_are() -> None:
    owner = Owner()
    owner.made["a/b", 1].load_state(changed().state())
    owner.given["c/d"] = changed()
    state = owner.state()
    again = Owner()
    again.load_state(state)
    assert list(again.made) == [("a/b", 1)] and not again.given
    assert plain(again.made["a/b", 1]) == plain(changed())
    for name, content in state.items():  # a checkpoint of it has what waits, too
        kept = again.state()[name]
        assert torch.equal(kept, content) if isinstance(content, Tensor) else kept == content
    again.given["c/d"] = Part()
    assert plain(again.given["c/d"]) == plain(changed())
    again.given["e"] = Part()
    assert plain(again.given["e"]) == plain(Part())
    with pytest.raises(KeyError):
        _ = again.given["f"]
    before = Owner()
    before.given["c/d"] = Part()
    before.load_state(state)
    assert plain(before.given["c/d"]) == plain(changed())
