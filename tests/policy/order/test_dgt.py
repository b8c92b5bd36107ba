"""DGT's decisions: rows 45, 46 and 49 of the acceptance list, and what must hold for any tensor."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.best_effort import type_of_service
from testbed.policy.order.dgt import SKIPPED, Dgt, Threshold, block_count, channels_of, contribution, sending_order
from tests.for_each import for_each


@for_each(("blocks", "expected"), [(13, [11, 1, 1, 0]), (32, [27, 2, 2, 1]), (128, [103, 9, 8, 8]), (1, [1, 0, 0, 0])])
def test_channel_sizes_are_those_of_the_original(blocks: int, expected: list[int]) -> None:
    counts = Counter(channels_of([float(block + 1) for block in range(blocks)], 0.8, 3))
    assert [counts[channel] for channel in range(4)] == expected


@for_each(("elements", "blocks"), [(1, 1), (1024, 1), (1025, 2), (262_144, 256)])
def test_a_tensor_has_a_block_per_4096_bytes_begun(elements: int, blocks: int) -> None:
    assert block_count(4 * elements, 4096) == blocks


def test_the_contribution_is_a_moving_average_from_zero() -> None:
    first = contribution(0.0, 2.0, 0.3)
    assert first == pytest.approx(1.4)
    assert contribution(first, 1.0, 0.3) == pytest.approx(0.3 * 1.4 + 0.7)


scores = st.lists(st.floats(0, 1e6), min_size=1, max_size=200)


@given(scores, st.floats(0.01, 1), st.integers(1, 7))
def test_every_block_has_its_channel(scores: list[float], k: float, channels: int) -> None:
    result = channels_of(scores, k, channels)
    assert result[-1] == 0
    worth = [block for block in range(len(scores) - 1) if scores[block] > 0]
    assert all(result[block] == SKIPPED for block in range(len(scores) - 1) if block not in worth)
    sent = len(worth) + 1
    important = min(math.floor(k * sent + 0.5), sent - 1)
    assert sum(result[block] == 0 for block in worth) == important
    by_score = [result[block] for block in sending_order(scores)]
    assert by_score == sorted(by_score), "less contribution, higher channel"
    sizes = Counter(channel for channel in by_score if channel)
    rest = len(worth) - important
    assert all(rest // channels <= sizes[channel] <= -(-rest // channels) for channel in range(1, channels + 1))


def test_k_follows_the_loss_down_to_its_floor() -> None:
    threshold = Threshold(Dgt.Options(k=0.8, k_min=0.2))
    assert [threshold.update(loss) for loss in (2.0, 1.0, 0.6, 0.1)] == pytest.approx([0.8, 0.4, 0.24, 0.2])
    assert threshold.update(100.0) == 1.0
    assert threshold.update(float("nan")) == 1.0


def test_marks_count_down_from_the_reliable_channel() -> None:
    assert [type_of_service(channel, 3) for channel in range(4)] == [96, 64, 32, 0]
    assert [type_of_service(channel, 7) for channel in (0, 7)] == [224, 0]
