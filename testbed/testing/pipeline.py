"""The contracts of schedules (``docs/axes/schedule.md``) and of placements (``docs/axes/placement.md``)."""

from __future__ import annotations

import random
from collections.abc import Iterator

from testbed.errors import ScenarioError
from testbed.policy.pipeline.base import Hop, PipelineShape, Schedule
from testbed.policy.pipeline.placement import Ground, Placement
from testbed.policy.pipeline.timing import timing_of
from testbed.testing.requirement import Broken, require, requirement
from testbed.testing.subject import Subject

_DRAWN = 40


def shapes() -> Iterator[PipelineShape]:
    """Yield shapes of pipelines with random durations: first the smallest, then drawn ones."""
    draw = random.Random(0)
    sizes = [(1, 1), (1, 4), (2, 1), (2, 4), (3, 6), (4, 8)]
    sizes += [(stages, stages * draw.randint(1, 4)) for stages in (draw.randint(1, 6) for _ in range(_DRAWN))]
    for stages, micro_batches in sizes:
        forward_s = [draw.uniform(0.1, 1) for _ in range(stages)]
        hops = [Hop(draw.choice((0.0, 0.3)), draw.choice((0.0, 2.0))) for _ in range(2 * stages)]
        yield PipelineShape(
            micro_batches,
            tuple(forward_s),
            tuple(2 * each for each in forward_s),
            tuple(forward_s),
            tuple(hops[:stages]),
            tuple(hops[stages:]),
        )


def _schedule(subject: Subject) -> Schedule:
    schedule: Schedule = subject.entry(subject.options)
    return schedule


def _possible(subject: Subject) -> Iterator[PipelineShape]:
    for shape in shapes():
        if not [*_schedule(subject).problems(shape.stages, shape.micro_batches)]:
            yield shape


@requirement("return every pass of every micro-batch once for each stage, in an order in which inputs come first")
def a_pipeline_can_compute_it(subject: Subject) -> None:
    """Every stage computes each pass once, with backward passes in ascending order, and no stage waits for ever."""
    for shape in _possible(subject):
        schedule = _schedule(subject)
        try:
            timing_of(schedule, schedule.tasks(shape), shape)
        except ScenarioError as error:
            raise Broken(f"with {shape.stages} stages and {shape.micro_batches} micro-batches: {error}") from error


@requirement("compute tasks from the shape and the options alone")
def made_twice_a_schedule_is_the_same(subject: Subject) -> None:
    """A new object and a used one return the same tasks, so that a scenario always makes the same Plan."""
    used = _schedule(subject)
    for shape in _possible(subject):
        same = used.tasks(shape) == _schedule(subject).tasks(shape)
        require(same, f"other tasks for {shape.stages} stages the second time")


SCHEDULE = (a_pipeline_can_compute_it, made_twice_a_schedule_is_the_same)


def grounds() -> Iterator[Ground]:
    """Yield grounds for placements, the smallest first."""
    draw = random.Random(0)
    for number in range(_DRAWN):
        stages = draw.randint(1, 4)
        sites = [(name, stages * draw.randint(1, 2)) for name in "abcdefgh"[: draw.randint(1, 4)]]
        if number % 2 and len(sites) > 1:  # a stage whose replicas are in two data centres
            sites[:2] = [("a", sites[0][1] + 1), ("b", sites[1][1] - 1)] if sites[1][1] > 1 else sites[:2]
        yield Ground(tuple(sites), stages, lambda a, b: Hop(1e-9, abs(ord(a) - ord(b)) / 10))


@requirement("return for every data centre as many stages as it has workers, each stage equally often")
def every_stage_has_as_many_workers(subject: Subject) -> None:
    """Each worker has one stage, and each stage has as many workers as there are replicas."""
    for ground in grounds():
        placement: Placement = subject.entry(subject.options)
        if [*placement.problems(ground)]:
            continue
        placed = placement.place(ground)
        counts = {site: len(placed.get(site, ())) for site, _ in ground.sites}
        require(counts == dict(ground.sites), f"stages for {counts} workers of {dict(ground.sites)}")
        every = [stage for stages in placed.values() for stage in stages]
        wrong = [stage for stage in range(ground.stages) if every.count(stage) != ground.replicas]
        require(not wrong, f"stage {wrong[:1]} has not {ground.replicas} of {len(every)} workers: {placed}")


@requirement("compute the placement from the ground and the options alone")
def made_twice_a_placement_is_the_same(subject: Subject) -> None:
    """A new object and a used one return the same placement."""
    used: Placement = subject.entry(subject.options)
    for ground in grounds():
        if not [*used.problems(ground)]:
            require(
                used.place(ground) == subject.entry(subject.options).place(ground), f"another one on {ground.sites}"
            )


PLACEMENT = (every_stage_has_as_many_workers, made_twice_a_placement_is_the_same)
