"""Models by codecs with memory: the change since the last value travels, and one payload serves equal ends."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from testbed.codec.base import Codec
from testbed.codec.changes import ChangesCodec
from testbed.codec.pull import DifferencePull
from testbed.codec.table import make_codec
from tests.engine.runs import Simulated, run
from tests.for_each import for_each

SIZE, WEIGHTS = 2000, (0.25, 0.75)
TOPK = {"ratio": 0.1, "bound": 2, "pull": "dense"}


def ends(kind: str, options: dict[str, object], weight: float) -> tuple[ChangesCodec, ChangesCodec]:
    """Return a child's end and its server's."""
    child, server = (ChangesCodec(make_codec(kind, options, changes=True), weight) for _ in "cs")
    return child, server


def values(seed: int) -> torch.Tensor:
    return torch.randn(SIZE, generator=torch.Generator().manual_seed(seed))


def began(kind: str, options: dict[str, object]) -> list[tuple[ChangesCodec, ChangesCodec]]:
    pairs = [ends(kind, options, weight) for weight in WEIGHTS]
    for end in (end for pair in pairs for end in pair):
        end.begin(0, values(0))
    return pairs


def mean(pairs: list[tuple[ChangesCodec, ChangesCodec]], models: list[torch.Tensor]) -> torch.Tensor:
    """Return the sum that the server makes of the children's models."""
    return torch.stack(
        [
            server.decode(0, child.encode(0, model * weight), SIZE)
            for (child, server), model, weight in zip(pairs, models, WEIGHTS, strict=True)
        ]
    ).sum(0)


def send(pairs: list[tuple[ChangesCodec, ChangesCodec]], value: torch.Tensor) -> list[torch.Tensor]:
    return [child.decode_value(0, server.encode_value(0, value), SIZE) for child, server in pairs]


def test_an_exact_codec_gives_the_mean_of_models() -> None:
    pairs = began("none", {})
    expected = WEIGHTS[0] * values(1) + WEIGHTS[1] * values(2)
    torch.testing.assert_close(mean(pairs, [values(1), values(2)]), expected)


def test_what_is_not_sent_stays_at_the_milestone_and_comes_later() -> None:
    """Both children move one element in ten far and all others a little: first the far ones change, then the others."""
    pairs = began("topk", TOPK)
    milestone, far = values(0), torch.zeros(SIZE)
    far[::10] = 5.0
    models = [milestone + far + 0.01] * 2
    first = mean(pairs, models)
    torch.testing.assert_close(first, milestone + far + 0.01 * (far > 0))
    for held in send(pairs, first):
        torch.testing.assert_close(held, first)
    second = mean(pairs, [first] * 2)  # nothing is learned any more: what was kept back follows
    moved = second - first
    assert SIZE // 10 <= int((moved.abs() > 0.001).sum()) <= 2 * SIZE // 10, "each child sends a tenth"
    assert float(moved.sum()) == pytest.approx(SIZE // 10 * 0.01, rel=1e-3)


def test_values_on_their_way_down_are_not_undone() -> None:
    """``pull: difference`` leaves the child behind. A child that learns nothing leaves the server's value as it is."""
    pairs = began("topk", TOPK | {"pull": "difference", "pull_ratio": 0.05})
    value = values(3)
    held = send(pairs, value)
    assert not torch.equal(held[0], value)
    torch.testing.assert_close(mean(pairs, held), value)


@for_each("kind", ["bisparse", "dgc"])
def test_changes_are_not_multiplied_by_momentum_correction(kind: str) -> None:
    """A constant change in every round: with momentum 0.9 the sum of what arrives would be ten times as much."""
    options = {"ratio": 0.5, "bound": 2, "pull": "dense", "momentum": 0.9}
    (child, server), milestone = ends(kind, options, 1.0), values(0)
    child.begin(0, milestone)
    server.begin(0, milestone)
    value = milestone
    for _ in range(40):
        value = server.decode(0, child.encode(0, value + 0.01), SIZE)
        value = child.decode_value(0, server.encode_value(0, value), SIZE)
    assert 0.3 < float((value - milestone).mean()) < 0.41


def test_a_checkpoint_has_the_milestones() -> None:
    pairs = began("topk", TOPK)
    send(pairs, mean(pairs, [values(1), values(2)]))
    (child, server), (_, restored) = pairs[0], ends("topk", TOPK, WEIGHTS[0])
    restored.load_state(server.state())
    payload = child.encode(0, values(4))
    assert torch.equal(restored.decode(0, payload, SIZE), server.decode(0, payload, SIZE))


KEY, SIZE = 5, 4000
DIFFERENCES = {"pull": "difference", "ratio": 0.1, "pull_ratio": 0.1}


def holders(number: int, first: Tensor, **options: object) -> list[Codec]:
    made = [make_codec("bisparse", DIFFERENCES | options, 2, 2) for _ in range(number)]
    for end in made:
        end.begin(KEY, first)
    return made


def test_ends_with_the_same_first_value_are_in_one_state_and_others_are_not() -> None:
    first = torch.randn(SIZE)
    one, same = holders(2, first)
    (other,) = holders(1, first.clone())
    assert one.value_state(KEY, SIZE) == same.value_state(KEY, SIZE) != other.value_state(KEY, SIZE)
    first.add_(1)
    (later,) = holders(1, first)
    assert later.value_state(KEY, SIZE) != one.value_state(KEY, SIZE)


def test_after_a_checkpoint_ends_that_hold_the_same_are_in_one_state_again() -> None:
    one, other, third = holders(3, torch.zeros(SIZE))
    value = torch.randn(SIZE)
    parts = one.encode_value(KEY, value)
    other.follow_value(KEY, value, parts)
    third.encode_value(KEY, -value)
    loaded = holders(3, torch.zeros(SIZE))
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
