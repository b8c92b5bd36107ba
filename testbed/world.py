"""The interface between roles and the world that they run in.

A role (worker, server, scheduler) is written once, as ``async`` code against ``World``. Two worlds implement it: the
real one (asyncio, sockets, wall-clock time) and the virtual one (SimPy's clock, a flow-level network). A role awaits
only what its World returned, reads no other clock, draws no randomness of its own, and cannot ask which world it is
in. ``tests/contract/world.py`` tests both worlds against this contract.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Protocol, TypeVar

import msgspec

from testbed.costs import Cost
from testbed.messages import Message
from testbed.plan.instant import Instant
from testbed.plan.pace import Pacer

T = TypeVar("T")


class Work(msgspec.Struct):
    """Describes a piece of computation, so that the world knows how long it takes.

    kind        ``step`` (a training step, paced by the node's device), ``sum``, ``optimizer``, ``select`` (of the
                largest elements), ``load`` (from disk), ``encode`` or ``decode`` (by a codec), ``copy`` (in memory:
                without modelled time, and then not recorded, unless the table of costs has it), or ``USER_CODE``
    round       the training round that it belongs to, for the record
    size_bytes  bytes read, for kinds whose time grows with size; for codecs, the payload's bytes, which the function
                may set
    cost        the row of the work in the table of measured costs
    elements    number of elements of the tensor that a codec encodes or decodes
    done_s      when the work is done, if the world knows this already (for the contributions of folded workers)
    steps       the number of training steps; a fraction for a part of one
    began_s     when the work began, if it began before the call (a user's script has computed meanwhile)
    part        the part of a step that is cut at layers, such as ``forward 2``; for the record
    """

    kind: str
    round: int = 0
    size_bytes: int = 0
    steps: float = 1.0
    began_s: float | None = None
    part: str = ""
    cost: Cost | None = None
    elements: int = 0
    done_s: float = 0.0

    def noted(self) -> dict[str, str]:
        """Return the event's field for a part of a step; empty for a whole step."""
        return {"part": self.part} if self.part else {}


class Future(Protocol[T]):
    """A value that is set once. It may be awaited more than once, and by several tasks."""

    def set_result(self, value: T, /) -> None: ...
    def set_exception(self, error: BaseException, /) -> None: ...
    def done(self) -> bool: ...
    def __await__(self) -> Generator[Any, Any, T]: ...


class World(Protocol):
    """Clock, messages, computation and records of one node. This role sends a computed tensor and receives an answer:

    async def role(world: World) -> Message:
        total = await world.compute(Work("sum", size_bytes=tensor.nbytes), lambda: tensor.sum().reshape(1))
        await world.send("tokyo/server", Message(MessageKind.PUSH, key=0, parts=(total,)))
        return await world.receive("the new value")
    """

    node: str
    pacer: Pacer  # gives the duration of this node's steps; a checkpoint keeps the number of steps done
    # Runs a call in this node's turn, from any thread; None in virtual time, where nothing runs beside a node.
    call_from_thread: Callable[[Callable[[], None]], object] | None

    def now(self) -> float:
        """Return the seconds since the run's start. All nodes have the same clock, which never goes back."""

    async def sleep(self, duration_s: float) -> None: ...

    async def send(self, to: str, message: Message) -> None:
        """Queue ``message`` for node ``to``. Return when it is queued, not when it has arrived.

        Wait while too many bytes are queued for that peer. Delivery between two nodes is reliable and in order
        within one priority. The message and its parts belong to the receiver from now on: do not change them.

        On channels above 0 delivery is best effort: a message may be lost or overtaken, but arrives at most once, and
        whole. It is sent only while nothing waits on channel 0, lower channels first, and no faster than the Plan's
        links allow; this call then never waits. The Plan gives the number of such channels.
        """

    async def send_aside(self, to: str, message: Message) -> None:
        """Send ``message`` outside the timed path, for evaluations: it takes no time of this world's clock.

        It is not recorded. Delivery is reliable, and in order among such messages. If the two nodes share no memory,
        the message is sent as by ``send``.
        """

    async def drain(self, to: str) -> None:
        """Return when no message for ``to`` waits on a channel above 0, and the last one has had its time to be sent.

        Messages that were dropped because the connection has ended do not count.
        """

    def forget(self, node: str, before_s: float) -> None:
        """Drop the messages that wait for ``node``, whose process from before ``before_s`` is lost.

        A new process of the node sends the first message; messages to it before then are dropped as well.
        """

    async def receive(self, waiting_for: str, deadline_s: float | None = None) -> Message:
        """Return the next message, from any node. ``waiting_for`` names the wait in records and in the wait graph.

        Raise ``WaitTimeout`` after ``deadline_s`` seconds (default: the Plan's step deadline).
        """

    def serve(self, handle: Callable[[Message], bool]) -> Awaitable[None]:
        """Call ``handle`` with every message, in the order of arrival, until it returns False.

        Await the result at once. Exceptions of ``handle`` are raised here. ``receive`` must not be called meanwhile.
        There is no deadline.
        """

    async def wait(self, future: Future[T], waiting_for: str, deadline_s: float | None = None) -> T:
        """Await a future with a name and a deadline, as in ``receive``. Raise ``WaitTimeout`` after the deadline."""

    async def compute(self, work: Work, function: Callable[[], T]) -> T:
        """Run ``function``; return its result when the time that ``work`` takes on this node has passed.

        Codecs have their own core, beside the device that trains, sums and optimizes. Each of the two does one piece of
        work at a time, in the order of the calls. Messages keep moving meanwhile.
        """

    async def settle(self, instant: Instant | None = None) -> Instant:
        """Wait until nothing is in flight between nodes, as all wait for a checkpoint. Return the present instant.

        instant  when the checkpoint was made, if the run resumes from it: do not return earlier

        In virtual time the instant includes the states of connections, so the run goes on in the same way whether or
        not it was interrupted here. Real worlds, and simulations of emulated networks, return at once, as their times
        cannot be repeated.
        """

    def aside(self, function: Callable[[], T]) -> Future[T]:
        """Run ``function`` outside the timed path (evaluation): it costs no time of this world's clock."""

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str) -> Future[T]:
        """Run ``coroutine`` as a task. An error of a task that is not awaited ends the node."""

    def future(self) -> Future[Any]:
        """Return a new, unset future."""

    def record(self, kind: str, **fields: Any) -> None:
        """Write one event of this node, stamped with ``now()``; see ``testbed.results.events`` for the kinds."""


# The result of a role differs by role; it is for callers in the same process.
Role = Callable[[World], Awaitable[Any]]
