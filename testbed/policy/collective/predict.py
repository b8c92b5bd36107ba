"""How long a set of schedules takes on uneven links: a max-plus recurrence over their messages.

The α–β–γ model (Hockney, 1994): a message of n bytes takes α + n β seconds on a link, and adding n bytes n γ. Each
ordered pair of ranks has a link on which messages go one after another; a rank's sums take turns. With ``port_beta_s``
all messages of a rank also leave through one port, one after another.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from testbed.policy.collective.schedule import RankTransfer, Schedule


@dataclass(frozen=True, slots=True)
class LinkCost:
    """``alpha_s`` per message, ``beta_s`` per byte sent, ``gamma_s`` per byte added."""

    alpha_s: float
    beta_s: float
    gamma_s: float = 0.0

    def copy_s(self, size_bytes: float) -> float:
        """Return the time of one message that is not added."""
        return self.alpha_s + size_bytes * self.beta_s


LinkOf = Callable[[int, int], LinkCost]


@dataclass
class _State:
    """The times at which links, ports and adders become free, and the arrival times of messages not yet taken."""

    link_free_s: dict[tuple[int, int], float] = field(default_factory=lambda: defaultdict(float))
    port_free_s: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    adder_free_s: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    arrivals: dict[tuple[int, int, int], deque[float]] = field(default_factory=lambda: defaultdict(deque))


def finish_times_s(
    schedules: Sequence[Schedule], size_bytes: float, link_of: LinkOf, port_beta_s: float = 0.0
) -> list[float]:
    """Return when each rank finishes its part; all start at 0. ``link_of(source, target)`` returns a link's cost."""
    scale = size_bytes / schedules[0].cuts[-1]
    state = _State()
    walks = [
        _Walk(rank, number, schedule, scale)
        for rank, schedule in enumerate(schedules)
        for number in range(len(schedule.pipes))
    ]
    ready = [(0.0, index) for index in range(len(walks))]
    heapify(ready)
    blocked: dict[tuple[int, int, int], int] = {}
    while ready:
        now_s, index = heappop(ready)
        walk = walks[index]
        for target in walk.send(state, link_of, port_beta_s):
            waiting = blocked.pop((walk.rank, target, walk.pipe), None)
            if waiting is not None:
                heappush(ready, (now_s, waiting))
        next_s = walk.receive(now_s, state, link_of)
        if next_s is None:
            blocked[walk.expected, walk.rank, walk.pipe] = index
        elif not walk.ended:
            heappush(ready, (next_s, index))
    assert not blocked, "the schedules wait for each other for ever"
    return [max((w.time_s for w in walks if w.rank == rank), default=0.0) for rank in range(len(schedules))]


class _Walk:
    """Walks through one pipe of one rank, step by step, and keeps its time."""

    def __init__(self, rank: int, pipe: int, schedule: Schedule, scale: float) -> None:
        self.rank = rank
        self.pipe = pipe
        self.time_s = 0.0
        self._steps = schedule.pipes[pipe]
        self._cuts = schedule.cuts
        self._scale = scale
        self._at = 0
        self._sent = False
        self._received = 0

    @property
    def ended(self) -> bool:
        return self._at == len(self._steps)

    def send(self, state: _State, link_of: LinkOf, port_beta_s: float) -> list[int]:
        """Put this step's messages on their links. Return the target ranks."""
        if self.ended or self._sent:
            return []
        self._sent = True
        for transfer in self._steps[self._at].sends:
            pair = (self.rank, transfer.peer)
            link = link_of(*pair)
            size_bytes = self._bytes(transfer)
            start_s = max(self.time_s, state.link_free_s[pair])
            if port_beta_s:
                start_s = max(start_s, state.port_free_s[self.rank])
                state.port_free_s[self.rank] = start_s + size_bytes * port_beta_s
            state.link_free_s[pair] = start_s + size_bytes * max(link.beta_s, port_beta_s)
            state.arrivals[(*pair, self.pipe)].append(state.link_free_s[pair] + link.alpha_s)
        return [transfer.peer for transfer in self._steps[self._at].sends]

    @property
    def expected(self) -> int:
        return self._steps[self._at].receives[self._received].peer

    def receive(self, now_s: float, state: _State, link_of: LinkOf) -> float | None:
        """Take one message that has arrived, or end the step.

        Return when to call again; ``None`` if the next message has not been sent yet.
        """
        if self.ended:
            return now_s
        receives = self._steps[self._at].receives
        if self._received == len(receives):
            self._at, self._sent, self._received = self._at + 1, False, 0
            return self.time_s
        queue = state.arrivals[self.expected, self.rank, self.pipe]
        if not queue:
            return None
        if queue[0] <= now_s:
            self.time_s = max(self.time_s, queue.popleft())
            self._add(receives[self._received], state, link_of)
            self._received += 1
            return self.time_s
        return queue[0]

    def _add(self, transfer: RankTransfer, state: _State, link_of: LinkOf) -> None:
        """Add a received message. The sums of a rank take turns, in the order of arrival."""
        gamma_s = link_of(transfer.peer, self.rank).gamma_s
        if transfer.reduce and gamma_s:
            self.time_s = max(self.time_s, state.adder_free_s[self.rank]) + self._bytes(transfer) * gamma_s
            state.adder_free_s[self.rank] = self.time_s

    def _bytes(self, transfer: RankTransfer) -> float:
        return (self._cuts[transfer.stop] - self._cuts[transfer.start]) * self._scale
