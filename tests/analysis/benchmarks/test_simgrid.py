"""The flow network against SimGrid 3.32's CM02: its results as constants and, where it is installed, itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis.benchmarks.simgrid import (
    TOLERANCE,
    Graph,
    compiled_program,
    installed,
    random_traffic,
    replay,
    ring,
    simgrid_times,
    star,
    two_tier,
    worst_difference,
)

# The end of the last transfer as SimGrid 3.32 printed it (`testbed bench simgrid`).
GOLDEN: list[tuple[Callable[[], Graph], float]] = [
    (lambda: star(300), 120.032514466),
    (lambda: ring(64), 14.895005974),
    (lambda: two_tier(10, 10), 9.040733090),
    pytest.param(lambda: two_tier(100, 10), 11.082897681, marks=pytest.mark.slow),  # 5 s
    pytest.param(lambda: two_tier(100, 10, 5), 51.408570508, marks=pytest.mark.slow),
    pytest.param(lambda: random_traffic(100, 2000), 139.282998267, marks=pytest.mark.slow),
    pytest.param(lambda: two_tier(1000, 10), 81.120450298, marks=pytest.mark.slow),
]  # type: ignore[list-item]


@pytest.mark.parametrize(("make", "end_s"), GOLDEN)
def test_simgrids_golden_values(make: Callable[[], Graph], end_s: float) -> None:
    graph = make()
    assert max(replay(graph, compiled=len(graph.links) > 1000)) == pytest.approx(end_s, abs=2e-9)


def test_the_order_of_the_transfers_waited_for_does_not_matter() -> None:
    graph, turned = two_tier(5, 3), two_tier(5, 3)
    turned.transfers = [transfer._replace(after=tuple(reversed(transfer.after))) for transfer in turned.transfers]
    assert replay(turned, compiled=False) == replay(graph, compiled=False)


@pytest.mark.parametrize(("ours", "theirs"), [([1.0, math.nan], [1.0, 2.0]), ([1.0, 2.0], [math.inf, 2.0])])
def test_a_transfer_that_never_ends_is_no_agreement(ours: list[float], theirs: list[float]) -> None:
    assert not worst_difference(ours, theirs) <= TOLERANCE
    assert worst_difference([1.0, 2.0], [1.0, 2.0]) == 0.0


@pytest.mark.skipif(not installed(), reason="SimGrid is not installed (apt-get install libsimgrid-dev)")
@pytest.mark.parametrize("make", [lambda: two_tier(7, 4, 2, seed=3), lambda: random_traffic(12, 150, seed=3)])
def test_every_transfer_ends_as_in_simgrid(make: Callable[[], Graph], tmp_path: Path) -> None:
    graph = make()
    theirs, _ = simgrid_times(compiled_program(tmp_path), graph, tmp_path)
    assert worst_difference(replay(graph, compiled=False), theirs) < TOLERANCE
