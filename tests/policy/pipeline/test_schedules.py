"""Schedules of pipelines against their closed forms, and against what no pipeline can compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from testbed.errors import ScenarioError
from testbed.policy.pipeline import SCHEDULES
from testbed.policy.pipeline.base import (
    BACKWARD,
    FORWARD,
    WEIGHTS,
    Hop,
    PipelineShape,
    Schedule,
    Task,
    Tasks,
    most_held,
    tasks_of,
    text_of,
)
from testbed.policy.pipeline.timing import Timing, timing_of

SIZES = [(stages, micro_batches) for stages in (1, 2, 3, 5, 8) for micro_batches in (1, 4, 8, 15, 40)]
NEAR = 1e-9
AT_ONCE = Hop()


def timed(kind: str, shape: PipelineShape, **options: Any) -> Timing:
    schedule = SCHEDULES[kind](SCHEDULES.options(kind, options))
    return timing_of(schedule, schedule.tasks(shape), shape)


def held(timing: Timing) -> tuple[int, ...]:
    """Return by stage of how many chunks of micro-batches it holds the activations at most."""
    return tuple(most_held(each.task for each in intervals) for intervals in timing.intervals)


def even_shape(
    stages: int, micro_batches: int, forward_s: float = 1.0, backward_s: float = 2.0, hop: Hop = AT_ONCE
) -> PipelineShape:
    """Return the shape of equal stages; half of a backward pass is the gradients of the weights."""
    return PipelineShape(
        micro_batches=micro_batches,
        forward_s=(forward_s,) * stages,
        backward_s=(backward_s,) * stages,
        weights_s=(backward_s / 2,) * stages,
        down=(hop,) * stages,
        up=(hop,) * stages,
    )


@pytest.mark.parametrize("kind", ["gpipe", "1f1b", "greedy"])
@pytest.mark.parametrize(("stages", "micro_batches"), SIZES)
def test_without_a_network_each_stage_waits_for_the_others_once(kind: str, stages: int, micro_batches: int) -> None:
    timing = timed(kind, even_shape(stages, micro_batches, 0.3, 0.7))
    assert timing.end_s == pytest.approx((micro_batches + stages - 1) * (0.3 + 0.7), abs=NEAR)


@pytest.mark.parametrize(("stages", "micro_batches"), SIZES)
def test_gpipe_holds_all_activations_and_1f1b_those_of_the_stages_that_follow(stages: int, micro_batches: int) -> None:
    shape = even_shape(stages, micro_batches)
    assert held(timed("gpipe", shape)) == (micro_batches,) * stages
    assert held(timed("1f1b", shape)) == tuple(min(micro_batches, stages - stage) for stage in range(stages))


@pytest.mark.parametrize("chunks", [2, 3, 4])
@pytest.mark.parametrize(("stages", "micro_batches"), [size for size in SIZES if size[1] % size[0] == 0])
def test_chunks_divide_the_waiting(stages: int, micro_batches: int, chunks: int) -> None:
    timing = timed("interleaved", even_shape(stages, micro_batches, 0.3 / chunks, 0.7 / chunks), chunks=chunks)
    assert timing.end_s == pytest.approx(micro_batches + (stages - 1) / chunks, abs=NEAR)


@pytest.mark.parametrize(("stages", "micro_batches"), [size for size in SIZES if size[1] >= size[0]])
def test_gradients_of_weights_fill_the_waiting(stages: int, micro_batches: int) -> None:
    timing = timed("zero_bubble", even_shape(stages, micro_batches, 1.0, 2.0))
    assert timing.end_s == pytest.approx(3 * micro_batches + stages - 1, abs=NEAR)
    assert max(held(timing)) <= stages


def test_two_stages_and_one_micro_batch_wait_for_the_way_there_and_back() -> None:
    hop = Hop(occupied_s=0.25, delay_s=4.0)
    assert timed("gpipe", even_shape(2, 1, 1.0, 2.0, hop)).end_s == pytest.approx(2 * (1 + 2) + 2 * 4.25, abs=NEAR)


def test_a_slow_way_carries_one_activation_after_the_other() -> None:
    hop = Hop(occupied_s=10.0, delay_s=0.0)
    # the last of 4 activations is there at 1 + 4·10; then the first backward pass ends, and 4 gradients go back
    assert timed("gpipe", even_shape(2, 4, 1.0, 2.0, hop)).end_s == pytest.approx(1 + 40 + 1 + 2 + 40 + 2, abs=NEAR)


def test_over_long_delays_greedy_is_sooner_than_1f1b_and_as_soon_as_gpipe() -> None:
    shape = even_shape(4, 16, 1.0, 2.0, Hop(0.2, 5.0))
    gpipe, one_f_one_b, greedy = (timed(kind, shape).end_s for kind in ("gpipe", "1f1b", "greedy"))
    assert greedy == pytest.approx(gpipe)
    assert greedy < 0.5 * one_f_one_b


@pytest.mark.parametrize("most", [4, 6, 9])
def test_greedy_keeps_to_its_memory_and_uses_it(most: int) -> None:
    shape = even_shape(4, 16, 1.0, 2.0, Hop(0.2, 5.0))
    timing = timed("greedy", shape, held=most)
    assert max(held(timing)) <= most
    assert timing.end_s <= timed("1f1b", shape).end_s + NEAR
    assert timed("greedy", shape, held=most + 3).end_s < timing.end_s


def test_one_stage_may_be_slower() -> None:
    even = even_shape(3, 8, 1.0, 2.0)
    slow = PipelineShape(8, (1.0, 3.0, 1.0), (2.0, 6.0, 2.0), even.weights_s, even.down, even.up)
    # stage 1 is busy from 1 on, until the last gradient has gone on to stage 0
    assert timed("gpipe", slow).end_s == pytest.approx(1 + 8 * 3 + 1 + 2 + 8 * 6 + 2, abs=NEAR)


@dataclass(frozen=True)
class _NoOptions:
    pass


class _Given(Schedule):
    Options = _NoOptions

    def __init__(self, tasks: Tasks) -> None:
        super().__init__(_NoOptions())
        self._tasks = tasks

    def tasks(self, shape: PipelineShape) -> Tasks:
        return self._tasks


def _passes(text: str) -> tuple[Task, ...]:
    """``_passes("F0 B0")``."""
    kinds = {"F": FORWARD, "B": BACKWARD}
    return tuple(Task(kinds[word[0]], int(word[1:])) for word in text.split())


@pytest.mark.parametrize(
    ("tasks", "problem"),
    [
        (("F0 F1 B0 B1",), "has tasks of 1 stages; return 2"),
        (("F0 F1 B0", "F0 F1 B0 B1"), "stage 0 of '_Given' lacks backward of micro-batch 1"),
        (("F0 F1 B0 B1", "F0 F1 B0 B1 B1"), "stage 1 of '_Given' has twice backward of micro-batch 1"),
        (("F0 F1 B0 B1", "F0 F1 F2 B0 B1"), "stage 1 of '_Given' has forward of micro-batch 2"),
        (("F0 F1 B1 B0", "F0 F1 B0 B1"), "runs backward in the order [1, 0]"),
        (("F0 B0 F1 B1", "F0 F1 B0 B1"), "waits for ever: stage 0 is to compute backward of micro-batch 0"),
    ],
)
def test_what_no_pipeline_computes_is_refused(tasks: tuple[str, ...], problem: str) -> None:
    given = tuple(map(_passes, tasks))
    with pytest.raises(ScenarioError) as refused:
        timing_of(_Given(given), given, even_shape(2, 2))
    assert problem in str(refused.value)


def test_interleaved_needs_whole_groups() -> None:
    schedule = SCHEDULES["interleaved"](SCHEDULES.options("interleaved", {}))
    assert [cure for _, cure in schedule.problems(4, 10)] == ["write 'micro_batches: 12', or another schedule"]
    assert not [*schedule.problems(4, 12)]


def test_tasks_are_text_in_the_plan() -> None:
    tasks = SCHEDULES["interleaved"](SCHEDULES.options("interleaved", {})).tasks(even_shape(2, 4))
    texts = [text_of(mine) for mine in tasks]
    assert texts[0].startswith("F0 F1 F0.1 F1.1")
    assert tuple(map(tasks_of, texts)) == tasks
    split = (Task(FORWARD, 0), Task(FORWARD, 1), Task(BACKWARD, 0), Task(FORWARD, 2), Task(WEIGHTS, 0))
    assert (text_of(split), most_held(split)) == ("F0 F1 B0 F2 W0", 3)
    assert tasks_of("") == ()
