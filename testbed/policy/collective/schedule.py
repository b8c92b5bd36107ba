"""What a collective operation is made of: for each rank, pipes of steps; in each step, chunks sent and received.

The buffer of n elements is cut into chunks by ``Schedule.cuts``. A pipe is a sequence of steps; pipes run beside each
other on disjoint chunks, which is how an operation is pipelined. In a step a rank first reads what it sends, then
takes what it receives, in the order listed: it adds it to its own chunk (``reduce``) or replaces the chunk. The next
step of the pipe begins when everything of this one is in.

Between two ranks, messages of one pipe keep their order, and each rank reads from one named peer at a time. So this
is a Kahn process network (Kahn, 1974): the result, rounding included, does not depend on the timing of anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise, zip_longest
from math import lcm


@dataclass(frozen=True, slots=True)
class RankTransfer:
    """Chunks ``start`` to ``stop`` (exclusive) to or from rank ``peer``; the receiver adds or replaces its own."""

    peer: int
    start: int
    stop: int
    reduce: bool = False


@dataclass(frozen=True, slots=True)
class ScheduleStep:
    """What one rank sends and receives at a time. All sends are of the values before this step's receives."""

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
        """Where the chunks of a buffer of ``elements`` begin, and at last its end."""
        return tuple(elements * cut // self.cuts[-1] for cut in self.cuts)


@dataclass(frozen=True, slots=True)
class GroupShape:
    """Who takes part: ``size`` ranks, in ring order; ``groups`` of ranks that are near each other (data centres).

    ``segments``: into how many parts the buffer is cut for pipelining.
    """

    size: int
    groups: tuple[tuple[int, ...], ...] = ()
    segments: int = 1

    def sites(self) -> tuple[tuple[int, ...], ...]:
        """The groups; all ranks form one when none are given."""
        return self.groups or (tuple(range(self.size)),)


def even_cuts(chunks: int) -> tuple[int, ...]:
    """Cuts into that many chunks of (almost) the same size."""
    return tuple(range(chunks + 1))


def placed(steps: Steps, members: Sequence[int], chunks: Sequence[tuple[int, int]]) -> Steps:
    """Steps among local ranks 0…, moved to the ranks ``members``; local chunk i becomes the range ``chunks[i]``."""

    def move(transfer: RankTransfer) -> tuple[RankTransfer, ...]:
        first = chunks[transfer.start]
        last = chunks[transfer.stop - 1]
        return (RankTransfer(members[transfer.peer], first[0], last[1], transfer.reduce),)

    return _changed(steps, move)


def _changed(steps: Steps, change: Callable[[RankTransfer], Iterable[RankTransfer]]) -> Steps:
    """Steps with what ``change`` makes of each transfer."""

    def changed(transfers: tuple[RankTransfer, ...]) -> tuple[RankTransfer, ...]:
        return tuple(chain.from_iterable(map(change, transfers)))

    return tuple(ScheduleStep(changed(step.sends), changed(step.receives)) for step in steps)


def merged(parts: Iterable[Steps]) -> Steps:
    """Several sequences of steps walked in step with each other."""
    return tuple(
        ScheduleStep(tuple(t for step in steps for t in step.sends), tuple(t for step in steps for t in step.receives))
        for steps in zip_longest(*parts, fillvalue=ScheduleStep())
    )


def side_by_side(schedules: Sequence[Schedule]) -> Schedule:
    """One rank's schedules on consecutive, equal parts of the buffer, in pipes of their own."""
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
    """The schedule with every chunk cut into so many pieces, each in a pipe of its own, so that steps overlap.

    An element takes the same way as in ``schedule``, so sums keep their bits. A transfer of several chunks becomes one
    for each, as their pieces do not adjoin.
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
    """As ``segmented``, for schedules that sum all elements in the same order: on so many parts of the buffer."""
    return schedule if segments == 1 else side_by_side([schedule] * segments)


def _shifted(steps: Steps, shift: int) -> Steps:
    def move(each: RankTransfer) -> tuple[RankTransfer, ...]:
        return (RankTransfer(each.peer, each.start + shift, each.stop + shift, each.reduce),)

    return _changed(steps, move)


def exchange(
    to: int, sent: tuple[int, int], source: int, received: tuple[int, int], *, reduce: bool = False
) -> ScheduleStep:
    """A step with one range of chunks sent and one received."""
    return ScheduleStep((RankTransfer(to, *sent, reduce),), (RankTransfer(source, *received, reduce),))


def busy(*steps: ScheduleStep) -> Steps:
    """Those of the steps in which anything is sent or received."""
    return tuple(step for step in steps if step != ScheduleStep())


def sending(peer: int, start: int, stop: int, *, reduce: bool) -> ScheduleStep:
    return ScheduleStep(sends=(RankTransfer(peer, start, stop, reduce),))


def receiving(peer: int, start: int, stop: int, *, reduce: bool) -> ScheduleStep:
    return ScheduleStep(receives=(RankTransfer(peer, start, stop, reduce),))
