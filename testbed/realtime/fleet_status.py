"""The state of a run's nodes: how each ended, which end caused the others, and which node waits for what."""

from __future__ import annotations

import math
import signal
from dataclasses import dataclass
from typing import Any

from testbed import errors
from testbed.errors import (
    CapabilityError,
    Diverged,
    Interrupted,
    NetworkMismatch,
    NodeLost,
    RunFailed,
    ScenarioError,
    TestbedError,
    WaitTimeout,
)
from testbed.realtime.heartbeat import PeerLost

_ERRORS = {kind.exit_code: kind for kind in (ScenarioError, CapabilityError, NetworkMismatch, Diverged)}
_OURS = {name for name, value in vars(errors).items() if isinstance(value, type)} | {PeerLost.__name__}


@dataclass(frozen=True, slots=True)
class NodeExit:
    """How a node ended.

    Attributes:
        code: Exit status, or minus the signal that killed the node; 0 is good.
        stopped: Whether the node was told to end, or the run continues without it.
        cause: Class of its error; ``PLACE: CLASS`` if the error came from a technique from outside the testbed.
        message: Text of its error.
        traceback: Traceback of an unexpected error.
        explained: Why its script ended the process: ``FILE:LINE: TYPE: TEXT``; empty if the node itself reported why.
        wait: If a wait ended the node: the node, what it waited for, since when in seconds of the run, and how long it
            was allowed to wait, in s.
        killer: Who killed the node, as far as known: a fault of the scenario, or the kernel.
        at_s: When the node recorded its error, in seconds of the run; infinite if unknown.
    """

    node: str
    code: int
    stopped: bool = False
    cause: str = ""
    message: str = ""
    traceback: str = ""
    explained: str = ""
    wait: tuple[str, str, float, float] | None = None
    killer: str = ""
    at_s: float = math.inf

    @property
    def failed(self) -> bool:
        """Whether the node ended with an error of its own."""
        return self.code != 0 and not self.stopped

    def error(self) -> TestbedError:
        """The error that a user gets for this end."""
        if self.wait is not None:
            return WaitTimeout(*self.wait)
        # The exit status says which error it was only if the node has reported it: a script may choose any status.
        kind = NodeLost if self.code < 0 else _ERRORS.get(self.code, RunFailed) if self.cause else RunFailed
        if self.explained:
            return kind(f"{self.node}: {self.explained}")
        if self.code < 0:
            name = signal.Signals(-self.code).name
            hint = f" ({self.killer})" if self.killer else ""
            return kind(f"{self.node} was killed by signal {-self.code}, {name}{hint}")
        if not self.cause:
            how = f"ended with exit status {self.code} and without a message"
            if self.code == Interrupted.exit_code:
                how = "got SIGTERM, which this run did not send"
            return kind(f"{self.node} {how}")
        if self.cause == PeerLost.__name__:
            return NodeLost(self.message)
        text = self.message if self.cause in _OURS else f"{self.cause}: {self.message}"
        error = kind(text if text.startswith(self.node) else f"{self.node}: {text}")
        if self.traceback:
            error.add_note(self.traceback)
        return error


def first_cause(exits: list[NodeExit]) -> NodeExit | None:
    """Return the exit that explains the others: a killed node, else another failure, else a node that lost a peer.

    Of the nodes that lost a peer, the first to notice it counts, as it may be the last to exit.
    """

    def order(end: NodeExit) -> tuple[int, float]:
        lost = end.cause == PeerLost.__name__
        return (0 if end.code < 0 else 1 + lost), end.at_s if lost else 0.0

    return min((end for end in exits if end.failed), key=order, default=None)


class FleetStatus:
    """Progress and waits of each node, from its status lines."""

    def __init__(self, now_s: float) -> None:
        self._last: dict[str, dict[str, Any]] = {}
        self.advanced_at_s = now_s

    def update(self, status: dict[str, Any], now_s: float) -> None:
        """Take a status line. ``now_s`` is on the caller's clock, as is ``advanced_at_s``."""
        before = self._last.get(status["node"], {"activity": 0})
        if status["activity"] > before["activity"]:
            self.advanced_at_s = now_s
        self._last[status["node"]] = status

    def end(self, end: NodeExit, goes_on: bool = False) -> None:
        """Remove a node that ended well, or that the run continues without; else keep the last wait of the node."""
        if end.code == 0 or goes_on:
            self._last.pop(end.node, None)
        elif end.wait is not None:
            _, what, since_s, _ = end.wait
            self._last[end.node] = {"waits": [[what, since_s]], "activity": 0}

    def wait_graph(self) -> str:
        """Return one line per node and wait, the longest wait first."""
        idle = [node for node, line in self._last.items() if not line["waits"]]
        lines = [f"{node} waits for {what} since t = {since_s:.3f} s" for since_s, node, what in self._waits()]
        return "\n".join(lines + [f"{node} waits for nothing: it computes, or does not run" for node in sorted(idle)])

    def longest_wait(self) -> tuple[str, str, float] | None:
        """Return the node, what it waits for, and since when in seconds of the run; None if no node waits."""
        return next(((node, what, since_s) for since_s, node, what in self._waits()), None)

    def _waits(self) -> list[tuple[float, str, str]]:
        """Return since when, which node, and what it waits for; the longest wait first."""
        return sorted((since_s, node, what) for node, line in self._last.items() for what, since_s in line["waits"])
