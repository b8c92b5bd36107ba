"""The algebra of faults: what the faults that are active on one target amount to together. Pure.

Every back end takes its faults from here, so that overlapping ones mean the same everywhere. The laws do not depend on
the order in which faults begin or end; what is left when one ends is what the others make of the target alone.

down                        a link is up when no ``down`` is active, its own outages and rates of 0 included
rate, delay                 the worst counts: the lowest rate, the longest delay, the link's own value included
loss                        the largest share counts, with its burst; of equal shares, the longest burst
corrupt, duplicate, reorder the largest share counts, the link's own value included
slow                        factors multiply, the device's own slowdown included
kill, join, leave           a node is present when it has joined and not left, and no ``kill`` is active
pause                       a process stands still while any ``pause`` is active that began in its life; one that begins
                            while the node, or its server, is absent has no process to stop
nan, disk_full              the rounds of all faults together
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from testbed.plan.fault_clock import Due, needed_with
from testbed.plan.model import FaultPlan, Plan, Series

LAWS: dict[str, Callable[[float, Sequence[float]], float]] = {
    "down": lambda own, active: min(own, 0.0) if active else own,
    "rate": lambda own, active: min((own, *active)),
    "delay": lambda own, active: max((own, *active)),
    "corrupt": lambda own, active: max((own, *active)),
    "duplicate": lambda own, active: max((own, *active)),
    "reorder": lambda own, active: max((own, *active)),
    "slow": lambda own, active: own * math.prod(sorted(active)),  # sorted: products of floats depend on the order
}
_DIGITS = 9  # of seconds: two faults one after the other leave no gap between them by rounding


def worst_loss(own: tuple[float, float], active: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return share and burst of losses; ``own`` and ``active`` likewise."""
    return max((own, *active))


def pieces(base: Series, faults: Sequence[FaultPlan]) -> Iterator[tuple[float, float, list[FaultPlan]]]:
    """Yield (time in s, value of ``base``, active faults) for every interval in which these stay the same.

    ``base`` is written out: no fault begins or ends in the part that repeats. A fault of no length is never active.
    """
    changes: defaultdict[float, list[int]] = defaultdict(list)
    for number, fault in enumerate(faults):
        assert fault.at_s is not None, "a link's fault, and that of a device, happens at a time"
        begin_s, end_s = round(fault.at_s, _DIGITS), round(fault.at_s + fault.for_s, _DIGITS)
        if begin_s < end_s:
            changes[begin_s].append(number)
            changes[end_s].append(number)
    own = dict(zip(base.times_s, base.values, strict=True))
    active: set[int] = set()
    value = base.values[0]
    for time_s in sorted({*own, *(time_s for time_s in changes if math.isfinite(time_s))}):
        value = own.get(time_s, value)
        active.symmetric_difference_update(changes.get(time_s, ()))
        yield time_s, value, [faults[number] for number in sorted(active)]


@dataclass(slots=True, kw_only=True)
class LinkState:
    """A link's present values, as its traces say. ``take`` follows them.

    ``rate_bps`` is the last rate above 0. ``jitter_s`` is what jitter adds to the delay now.
    """

    rate_bps: float
    delay_s: float
    loss: float = 0.0
    burst: float = 1.0
    corruption: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    jitter_s: float = 0.0
    enabled: bool = True  # by the trace of its state
    outage: bool = False  # by a rate of 0

    @property
    def up(self) -> bool:
        """Whether neither its state nor a rate of 0 has it down."""
        return self.enabled and not self.outage

    def take(self, what: str, value: float) -> None:
        """Take note of a trace's new value. ``what``: ``state``, ``rate``, ``delay``, ``jitter`` or another field."""
        if what == "state":
            self.enabled = value > 0
        elif what == "rate":
            self.outage = value <= 0
            self.rate_bps = value or self.rate_bps
        else:
            name = f"{what}_s" if what in ("delay", "jitter") else what
            setattr(self, name, value)


class NodeEffects:
    """Which nodes are absent or stopped, as the faults so far have it. Of one attempt of a run: a restart begins anew.

    ``apply`` says what is to be done about a fault that begins or ends: (``kill`` | ``stop`` | ``continue`` | ``leave``
    | ``start``, node). ``start`` is of a run whose other nodes have gone on; see ``starting``.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        # by node: why it is absent, each a fault's number or a kind, and whether that has an end
        self._absent: defaultdict[str, dict[int | str, bool]] = defaultdict(dict)
        self._stopped: defaultdict[str, set[int]] = defaultdict(set)  # by node: the pauses of its present process
        for fault in plan.faults:
            for node in fault.targets if fault.kind == "join" else ():
                self._absent[node]["join"] = True

    def apply(self, due: Due) -> list[tuple[str, str]]:
        """Return what is to be done, in order of the targets."""
        actions = [(self._action(due, node), node) for node in due.fault.targets]
        return [(action, node) for action, node in actions if action]

    def _action(self, due: Due, node: str) -> str:
        absent, stopped, kind = self._absent[node], self._stopped[node], due.fault.kind
        if kind == "kill" and due.begins:
            absent[due.number] = math.isfinite(due.fault.for_s)
            stopped.clear()
            return "kill"
        if kind == "leave":
            absent["leave"] = False
            return "leave"
        if kind in ("kill", "join"):
            absent.pop("join" if kind == "join" else due.number, None)
            return "" if absent else "start"
        if kind != "pause" or (self._is_away(node) if due.begins else due.number not in stopped):
            return ""
        (stopped.add if due.begins else stopped.discard)(due.number)
        return "stop" if due.begins else "" if stopped else "continue"

    def _is_away(self, node: str) -> bool:
        """Return whether a node has no process: it is absent, or its server. Who leaves ends its round before."""
        return any(reason != "leave" for name in (node, *self._servers(node)) for reason in self._absent[name])

    def _servers(self, node: str) -> list[str]:
        """Return the local server of a worker, with which it ends and starts; of other nodes none."""
        return [name for name in self._plan.node(node).parents if self._plan.node(name).role == "server"]

    def returns(self, node: str) -> bool:
        """Return whether faults that have an end are all that keeps the node away."""
        return all(self._absent[node].values())

    def starting(self, node: str) -> tuple[str, ...]:
        """Return the nodes to start when ``node`` comes back: see ``needed_with``, without those that are absent.

        None if its server is absent: it comes back with that.
        """
        if any(self._absent[name] for name in (node, *self._servers(node))):
            return ()
        return tuple(name for name in needed_with(self._plan, node) if not self._absent[name])
