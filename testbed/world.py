"""The one seam: what a role may ask of the world that it runs in.

A worker, a server, a scheduler is written once, as ``async`` code against ``World``. Two worlds implement it: the
real one (asyncio, sockets, wall-clock time) and the virtual one (SimPy's clock, a flow-level network). A role awaits
nothing but what a World gave it, reads no clock of its own, draws no randomness of its own, and cannot ask which
world it is in. The contract that both keep is ``tests/contract/world.py``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Protocol, TypeVar

import msgspec

from testbed.messages import Message
from testbed.plan.pace import Pacer

T = TypeVar("T")


class Work(msgspec.Struct):
    """What a piece of computation is, so that the world can say how long it takes.

    kind      ``step`` (one training step: paced by the node's device), ``sum`` or ``optimizer`` (server side),
              ``script`` (a user's code until its next call: it really runs, and is paced by the step that it ends in)
    round     the training round that it belongs to, for the record
    size_bytes  bytes read, for kinds whose time grows with size
    steps     how many training steps this is
    began_s   when it began, if that was before it is handed over (a user's script has computed meanwhile)
    part      which part of a step it is, where steps are cut at their layers, e.g. ``forward 2``; for the record
    """

    kind: str
    round: int = 0
    size_bytes: int = 0
    steps: float = 1.0
    began_s: float | None = None
    part: str = ""

    def noted(self) -> dict[str, str]:
        """What the record says of the part; nothing of a whole."""
        return {"part": self.part} if self.part else {}


class Future(Protocol[T]):
    """A value that somebody will set once. Awaiting it twice is allowed; several may await it."""

    def set_result(self, value: T, /) -> None: ...
    def set_exception(self, error: BaseException, /) -> None: ...
    def done(self) -> bool: ...
    def __await__(self) -> Generator[Any, Any, T]: ...


class World(Protocol):
    """Clock, messages, computation and records of one node."""

    node: str
    pacer: Pacer  # of this node's steps; a checkpoint keeps how many it has had

    def now(self) -> float:
        """Seconds since the run's start; the same clock on every node; never goes back."""

    async def sleep(self, duration_s: float) -> None: ...

    async def send(self, to: str, message: Message) -> None:
        """Hand ``message`` over for delivery to node ``to``. Returns when it is accepted, not when it has arrived.

        Waits while too many bytes are queued for that peer. Delivery between two nodes is reliable and in order
        within one priority. The message and its parts belong to the receiver from now on: do not change them.

        On channels above 0 it is best effort: a message may be lost, may overtake others and be overtaken, but comes
        once at most, and whole. It is sent only while nothing waits on channel 0, the lower channel first, no faster
        than the Plan's links; it never waits here. The Plan says how many such channels there are.
        """

    async def receive(self, waiting_for: str, deadline_s: float | None = None) -> Message:
        """The next message from anybody. ``waiting_for`` names the wait in records and in the wait graph.

        Raises ``WaitTimeout`` after ``deadline_s`` (default: the Plan's step deadline).
        """

    def serve(self, handle: Callable[[Message], bool]) -> Awaitable[None]:
        """Hand every message to ``handle``, in the order of arrival, until it returns False; to be awaited at once.

        What ``handle`` raises is raised here. Nobody receives meanwhile. There is no deadline: idle is normal.
        """

    async def wait(self, future: Future[T], waiting_for: str, deadline_s: float | None = None) -> T:
        """Await a future under a name and a deadline. Raises ``WaitTimeout``."""

    async def compute(self, work: Work, function: Callable[[], T]) -> T:
        """Run ``function`` and let as much time pass as ``work`` takes on this node's device."""

    def aside(self, function: Callable[[], T]) -> Future[T]:
        """Run ``function`` outside the timed path (evaluation): it costs no time of this world's clock."""

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str) -> Future[T]:
        """Run ``coroutine`` beside the caller. An error that nobody awaits ends the node."""

    def future(self) -> Future[Any]:
        """A new, unset future."""

    def record(self, kind: str, **fields: Any) -> None:
        """Write one event of this node, stamped with ``now()``; see ``testbed.results.events`` for the kinds."""


# What a role returns is for callers in the same process, and differs by role.
Role = Callable[[World], Awaitable[Any]]
