"""Ends that hold the same for their children: one payload of a value serves them all, from the first value on."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from testbed.codec.base import Codec
from testbed.codec.pull import DifferencePull
from testbed.codec.table import make_codec
from tests.engine.runs import Simulated, run
from tests.for_each import for_each

KEY, SIZE = 5, 4000
DIFFERENCES = {"pull": "difference", "ratio": 0.1, "pull_ratio": 0.1}


def ends(number: int, first: Tensor, **options: object) -> list[Codec]:
    made = [make_codec("bisparse", DIFFERENCES | options, 2, 2) for _ in range(number)]
    for end in made:
        end.begin(KEY, first)
    return made


def test_ends_with_the_same_first_value_are_in_one_state_and_others_are_not() -> None:
    first = torch.randn(SIZE)
    one, same = ends(2, first)
    (other,) = ends(1, first.clone())
    assert one.value_state(KEY, SIZE) == same.value_state(KEY, SIZE) != other.value_state(KEY, SIZE)
    first.add_(1)
    (later,) = ends(1, first)
    assert later.value_state(KEY, SIZE) != one.value_state(KEY, SIZE)


def test_after_a_checkpoint_ends_that_hold_the_same_are_in_one_state_again() -> None:
    one, other, third = ends(3, torch.zeros(SIZE))
    value = torch.randn(SIZE)
    parts = one.encode_value(KEY, value)
    other.follow_value(KEY, value, parts)
    third.encode_value(KEY, -value)
    loaded = ends(3, torch.zeros(SIZE))
    for end, kept in zip(loaded, (one, other, third), strict=True):
        end.load_state(kept.state())
    states = [end.value_state(KEY, SIZE) for end in loaded]
    assert states[0] == states[1] != states[2]
    assert None not in states


@for_each("models", [False, True])
def test_a_server_encodes_a_value_once_for_all_and_ends_with_the_same_bits(
    models: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codec = "codec={tier1: none, tier2: {kind: bisparse, ratio: 0.1, pull: difference, pull_ratio: 0.1, bound: 100}}"
    sync = ("sync={kind: hfa, k1: 1, k2: 1}", "optimizer={kind: sgd, at: worker}") if models else ()
    shared = run(tmp_path / "shared", codec, *sync)
    with monkeypatch.context() as alone:
        alone.setattr(DifferencePull, "value_state", lambda self, wire_key: None)
        each = run(tmp_path / "each", codec, *sync)
    assert shared.hashes() == each.hashes()

    def encodings(result: Simulated) -> int:
        done = result.of_kind("compute", "hub/global0")
        return sum(event["work"] == "encode" for event in done)

    assert encodings(each) == 3 * encodings(shared) > 0
