"""Carries out a set of schedules on symbols instead of numbers, and so proves what they do.

Each rank begins with its own contribution in every chunk. What a chunk holds in the end is an expression over
contributions, so both "every contribution exactly once" and "added in the same order everywhere" can be read off.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from testbed.policy.collective.schedule import Schedule, ScheduleStep


@dataclass(frozen=True, slots=True)
class Sum:
    """An expression: one rank's contribution (``text`` is its number), or a sum; equal when the bits must be equal.

    ``left + right`` and ``right + left`` are the same number in IEEE 754, so the operands are kept in order.
    """

    text: str
    leaves: tuple[int, ...]

    def plus(self, other: Sum) -> Sum:
        first, second = sorted((self.text, other.text))
        return Sum(f"({first}+{second})", tuple(sorted(self.leaves + other.leaves)))


class BadSchedule(AssertionError):
    """A set of schedules that does not do its work; the message says where."""


Choose = Callable[[int], int]


@dataclass
class _Direction:
    """One pipe of one rank: the steps to come. ``sent`` of the step at hand, and how many receives are done."""

    rank: int
    number: int
    steps: deque[ScheduleStep]
    sent: bool = False
    received: int = 0


@dataclass
class _Network:
    queues: dict[tuple[int, int, int], deque[tuple[int, int, bool, list[Sum]]]] = field(default_factory=dict)

    def queue(self, source: int, target: int, pipe: int) -> deque[tuple[int, int, bool, list[Sum]]]:
        return self.queues.setdefault((source, target, pipe), deque())


def carry_out(schedules: Sequence[Schedule], choose: Choose = lambda ready: 0) -> list[list[Sum]]:
    """What each rank's chunks hold at the end. ``choose(n)`` picks which of n pipes that can go on goes on.

    Raises ``BadSchedule`` when ranks wait for each other for ever, when a message is not the one that its receiver
    expects, when messages are left over, or when two pipes touch the same chunk.
    """
    cuts = {schedule.cuts for schedule in schedules}
    if len(cuts) != 1 or len({len(schedule.pipes) for schedule in schedules}) != 1:
        raise BadSchedule("the ranks cut the buffer differently")
    for rank, schedule in enumerate(schedules):
        _check_lanes_disjoint(rank, schedule)
    values = [[Sum(str(rank), (rank,))] * (len(schedule.cuts) - 1) for rank, schedule in enumerate(schedules)]
    network = _Network()
    pipes = [
        _Direction(rank, number, deque(steps))
        for rank, schedule in enumerate(schedules)
        for number, steps in enumerate(schedule.pipes)
    ]
    while active := [pipe for pipe in pipes if pipe.steps]:
        ready = [pipe for pipe in active if _can_go_on(pipe, network)]
        if not ready:
            raise BadSchedule("; ".join(f"rank {pipe.rank} waits in {pipe.steps[0]}" for pipe in active))
        _advance(ready[choose(len(ready))], network, values)
    if any(network.queues.values()):
        raise BadSchedule(f"messages nobody takes: {[key for key, queue in network.queues.items() if queue]}")
    return values


def _check_lanes_disjoint(rank: int, schedule: Schedule) -> None:
    touched: set[int] = set()
    for pipe in schedule.pipes:
        mine = {
            chunk
            for step in pipe
            for transfer in (*step.sends, *step.receives)
            for chunk in range(transfer.start, transfer.stop)
        }
        if touched & mine or not mine <= set(range(len(schedule.cuts) - 1)):
            raise BadSchedule(f"rank {rank}: pipes share chunks, or use some that are not there")
        touched |= mine


def _can_go_on(pipe: _Direction, network: _Network) -> bool:
    step = pipe.steps[0]
    if not pipe.sent or pipe.received == len(step.receives):
        return True
    return bool(network.queue(step.receives[pipe.received].peer, pipe.rank, pipe.number))


def _advance(pipe: _Direction, network: _Network, values: list[list[Sum]]) -> None:
    """Send all, or take one receive, or go to the next step."""
    step = pipe.steps[0]
    mine = values[pipe.rank]
    if not pipe.sent:
        for send in step.sends:
            message = (send.start, send.stop, send.reduce, mine[send.start : send.stop])
            network.queue(pipe.rank, send.peer, pipe.number).append(message)
        pipe.sent = True
    elif pipe.received < len(step.receives):
        wanted = step.receives[pipe.received]
        start, stop, reduce, symbols = network.queue(wanted.peer, pipe.rank, pipe.number).popleft()
        if (start, stop, reduce) != (wanted.start, wanted.stop, wanted.reduce):
            raise BadSchedule(f"rank {pipe.rank} expects {wanted} and gets chunks {start} to {stop}, reduce={reduce}")
        new = [old.plus(symbol) for old, symbol in zip(mine[start:stop], symbols, strict=True)] if reduce else symbols
        mine[start:stop] = new
        pipe.received += 1
    else:
        pipe.steps.popleft()
        pipe.sent, pipe.received = False, 0


def check_all_reduce(schedules: Sequence[Schedule], choose: Choose = lambda ready: 0) -> list[str]:
    """Proves an all-reduce: every rank ends with every contribution once, by the same sum. Returns it, per chunk."""
    values = carry_out(schedules, choose)
    everybody = Counter(range(len(schedules)))
    for rank, chunks in enumerate(values):
        for chunk, value in enumerate(chunks):
            if Counter(value.leaves) != everybody:
                raise BadSchedule(f"chunk {chunk} of rank {rank} holds {value.text}")
            if value != values[0][chunk]:
                raise BadSchedule(f"chunk {chunk}: rank {rank} has {value.text}, rank 0 {values[0][chunk].text}")
    return [value.text for value in values[0]]
