"""The schedule of a collective operation: each rank runs pipes of steps; in each step it sends and receives chunks.

The buffer of n elements is cut into chunks by ``Schedule.cuts``. A pipe is a sequence of steps; pipes run concurrently
on disjoint chunks, which pipelines the operation. In a step, a rank first reads the chunks that it sends. Then it takes
the chunks that it receives, in the order listed, and adds each to its own chunk (``reduce``) or replaces its own. The
next step of the pipe begins when all chunks of this step have been received.

Between two ranks, messages of one pipe keep their order, and each rank reads from one named peer at a time. So this
is a Kahn process network (Kahn, 1974): the result, rounding included, does not depend on timing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise, zip_longest
from math import lcm


@dataclass(frozen=True, slots=True)
class RankTransfer:
    """Chunks ``start`` to ``stop`` (exclusive) sent to or received from rank ``peer``.

    reduce  whether the receiver adds them to its own chunks; otherwise they replace its own
    """

    peer: int
    start: int
    stop: int
    reduce: bool = False


@dataclass(frozen=True, slots=True)
class ScheduleStep:
    """What one rank sends and receives in one step. Sends carry the values from before this step's receives."""

    sends: tuple[RankTransfer, ...] = ()
    receives: tuple[RankTransfer, ...] = ()


Steps = tuple[ScheduleStep, ...]


@dataclass(frozen=True, slots=True)
class Schedule:
    """One rank's part of a collective operation.

    Chunk i covers the share from ``cuts[i] / cuts[-1]`` to ``cuts[i + 1] / cuts[-1]`` of the buffer; it may be empty.
    All ranks of an operation have the same cuts and the same number of pipes.
    """

    cuts: tuple[int, ...]
    pipes: tuple[Steps, ...]

    def bounds(self, elements: int) -> tuple[int, ...]:
        """Return where each chunk of a buffer of ``elements`` begins, followed by the buffer's end."""
        return tuple(elements * cut // self.cuts[-1] for cut in self.cuts)


@dataclass(frozen=True, slots=True)
class GroupShape:
    """The ranks that take part.

    size      number of ranks, which are numbered in ring order
    groups    ranks that are near each other (data centres)
    segments  number of parts into which the buffer is cut for pipelining
    """

    size: int
    groups: tuple[tuple[int, ...], ...] = ()
    segments: int = 1

    def sites(self) -> tuple[tuple[int, ...], ...]:
        """Return the groups, or one group of all ranks if none are given."""
        return self.groups or (tuple(range(self.size)),)


def even_cuts(chunks: int) -> tuple[int, ...]:
    """Return cuts into ``chunks`` chunks of (almost) the same size."""
    return tuple(range(chunks + 1))


def placed(steps: Steps, members: Sequence[int], chunks: Sequence[tuple[int, int]]) -> Steps:
    """Return steps among local ranks 0, 1, … as steps among the ranks ``members``.

    chunks  the range of chunks that each local chunk becomes
    """

    def move(transfer: RankTransfer) -> tuple[RankTransfer, ...]:
        first = chunks[transfer.start]
        last = chunks[transfer.stop - 1]
        return (RankTransfer(members[transfer.peer], first[0], last[1], transfer.reduce),)

    return _changed(steps, move)


def _changed(steps: Steps, change: Callable[[RankTransfer], Iterable[RankTransfer]]) -> Steps:
    """Return the steps with each transfer replaced by the transfers that ``change`` returns for it."""

    def changed(transfers: tuple[RankTransfer, ...]) -> tuple[RankTransfer, ...]:
        return tuple(chain.from_iterable(map(change, transfers)))

    return tuple(ScheduleStep(changed(step.sends), changed(step.receives)) for step in steps)


def merged(parts: Iterable[Steps]) -> Steps:
    """Return one sequence whose i-th step joins the i-th steps of all ``parts``."""
    return tuple(
        ScheduleStep(tuple(t for step in steps for t in step.sends), tuple(t for step in steps for t in step.receives))
        for steps in zip_longest(*parts, fillvalue=ScheduleStep())
    )


def side_by_side(schedules: Sequence[Schedule]) -> Schedule:
    """Join schedules of one rank: each gets an equal part of the buffer, in order, and keeps pipes of its own."""
    scale = lcm(*(schedule.cuts[-1] for schedule in schedules))
    cuts = [0]
    pipes = []
    for part, schedule in enumerate(schedules):
        shift = len(cuts) - 1
        factor = scale // schedule.cuts[-1]
        cuts += [part * scale + cut * factor for cut in schedule.cuts[1:]]
        pipes += [_shifted(pipe, shift) for pipe in schedule.pipes]
    return Schedule(tuple(cuts), tuple(pipes))


def segmented(schedule: Schedule, segments: int) -> Schedule:
    """Return the schedule with every chunk cut into ``segments`` pieces, each in a pipe of its own, so steps overlap.

    Each element takes the same way as in ``schedule``, so sums keep their bits. A transfer of several chunks becomes
    one transfer per chunk, because their pieces do not adjoin.
    """
    if segments == 1:
        return schedule
    cuts = [a * segments + (b - a) * piece for a, b in pairwise(schedule.cuts) for piece in range(segments)]

    def cut(each: RankTransfer, piece: int) -> Iterable[RankTransfer]:
        for chunk in range(each.start * segments + piece, each.stop * segments, segments):
            yield RankTransfer(each.peer, chunk, chunk + 1, each.reduce)

    pipes = tuple(_changed(pipe, partial(cut, piece=piece)) for piece in range(segments) for pipe in schedule.pipes)
    return Schedule((*cuts, schedule.cuts[-1] * segments), pipes)


def repeated(schedule: Schedule, segments: int) -> Schedule:
    """Run the schedule on each of ``segments`` equal parts of the buffer, in pipes of their own.

    It pipelines like ``segmented``, for schedules that sum all elements in the same order.
    """
    return schedule if segments == 1 else side_by_side([schedule] * segments)


def _shifted(steps: Steps, shift: int) -> Steps:
    def move(each: RankTransfer) -> tuple[RankTransfer, ...]:
        return (RankTransfer(each.peer, each.start + shift, each.stop + shift, each.reduce),)

    return _changed(steps, move)


def exchange(
    to: int, sent: tuple[int, int], source: int, received: tuple[int, int], *, reduce: bool = False
) -> ScheduleStep:
    """Return a step that sends one range of chunks and receives another."""
    return ScheduleStep((RankTransfer(to, *sent, reduce),), (RankTransfer(source, *received, reduce),))


def busy(*steps: ScheduleStep) -> Steps:
    """Return the steps that send or receive anything."""
    return tuple(step for step in steps if step != ScheduleStep())


def sending(peer: int, start: int, stop: int, *, reduce: bool) -> ScheduleStep:
    return ScheduleStep(sends=(RankTransfer(peer, start, stop, reduce),))


def receiving(peer: int, start: int, stop: int, *, reduce: bool) -> ScheduleStep:
    return ScheduleStep(receives=(RankTransfer(peer, start, stop, reduce),))
