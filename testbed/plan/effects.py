"""The algebra of faults: the combined effect of all active faults on one target. Pure functions.

Every back end uses this module, so that overlapping faults have the same effect everywhere. The laws do not depend on
the order in which faults begin or end. When a fault ends, the effect is that of the other faults alone.

down                        a link is up when no ``down`` is active, its own outages and rates of 0 included
rate, delay                 the lowest rate and the longest delay count, the link's own values included
loss                        the largest share counts, with its burst; of equal shares, the one with the longest burst
corrupt, duplicate, reorder the largest share counts, the link's own value included
slow                        factors multiply, the device's own slowdown included
kill, join, leave           a node is present when it has joined and not left, and no ``kill`` is active
pause                       a process stands still while any ``pause`` is active that began in its lifetime; a pause
                            that begins while the node, or its server, is absent has no effect
nan, disk_full              the union of the rounds of all faults
attack                      the fault that began last counts; if several began in one round, the strongest, and among
                            equally strong ones the last by name

Faults of links and devices are written into the series that every back end follows. Faults that must be carried out
during a run, such as killing a process, are in ``testbed.plan.fault_clock``.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from testbed.errors import ScenarioError
from testbed.plan.fault_clock import Due, needed_with
from testbed.plan.model import FaultPlan, LinkPlan, NetworkPlan, NodePlan, Plan
from testbed.settings.series import Series

LAWS: dict[str, Callable[[float, Sequence[float]], float]] = {
    **dict.fromkeys(("down", "rate"), lambda own, active: min((own, *active))),  # the value of ``down`` is 0
    **dict.fromkeys(("delay", "corrupt", "duplicate", "reorder"), lambda own, active: max((own, *active))),
    "slow": lambda own, active: own * math.prod(sorted(active)),  # sorted: products of floats depend on the order
}
# by kind: the trace that a fault changes, and the link's field with the undisturbed value
_CHANGED = {
    "down": ("state_trace", ""),
    "rate": ("rate_trace", "rate_bps"),
    "delay": ("delay_trace", "delay_s"),
    "corrupt": ("corruption_trace", "corruption"),
    "duplicate": ("duplication_trace", "duplication"),
    "reorder": ("reordering_trace", "reordering"),
}
MOST_POINTS = 1_000_000
Law = Callable[[float, Sequence[FaultPlan]], float]
_DIGITS = 9  # decimals of seconds: rounding leaves no gap between a fault and another that follows directly


def worst_loss(own: tuple[float, float], active: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the (share, burst) of losses that counts: of the link's ``own`` and those of the active faults."""
    return max((own, *active))


def pieces(base: Series, faults: Sequence[FaultPlan]) -> Iterator[tuple[float, float, list[FaultPlan]]]:
    """Yield (time in s, value of ``base``, active faults) for every interval in which these stay the same.

    No fault may begin or end in the part of ``base`` that repeats. A fault of length 0 is never active.
    """
    changes: defaultdict[float, list[int]] = defaultdict(list)
    for number, fault in enumerate(faults):
        assert fault.at_s is not None, "a link's fault, and that of a device, happens at a time"
        begin_s = round(fault.at_s, _DIGITS)
        end_s = round(fault.at_s + fault.for_s, _DIGITS)
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


@dataclass(slots=True)
class LinkState:
    """The present values of a planned link, which are at first the Plan's. ``take`` applies a new value of a trace.

    ``rate_bps`` is the last rate above 0. ``jitter_s`` is the jitter's present contribution to the delay.
    """

    plan: LinkPlan
    rate_bps: float = field(init=False)
    delay_s: float = field(init=False)
    loss: float = field(init=False)
    burst: float = field(init=False)
    corruption: float = field(init=False)
    duplication: float = field(init=False)
    reordering: float = field(init=False)
    jitter_s: float = field(init=False, default=0.0)
    enabled: bool = field(init=False, default=True)  # whether the state trace has the link up
    outage: bool = field(init=False, default=False)  # whether the present rate is 0

    def __post_init__(self) -> None:
        for name in ("rate_bps", "delay_s", "loss", "corruption", "duplication", "reordering"):
            setattr(self, name, getattr(self.plan, name))
        self.burst = self.plan.loss_burst_packets

    @property
    def lost(self) -> float:
        """Share of packets that do not arrive, or arrive corrupted; 1 while the link is down."""
        return 1 - (1 - self.loss) * (1 - self.corruption) if self.up else 1.0

    @property
    def up(self) -> bool:
        """Whether the link is up: neither its state nor a rate of 0 has it down."""
        return self.enabled and not self.outage

    def take(self, what: str, value: float) -> None:
        """Apply a trace's new value. ``what``: ``state``, ``rate``, ``delay``, ``jitter`` or another field's name."""
        if what == "state":
            self.enabled = value > 0
        elif what == "rate":
            self.outage = value <= 0
            self.rate_bps = value or self.rate_bps
        else:
            name = f"{what}_s" if what in ("delay", "jitter") else what
            setattr(self, name, value)


class NodeEffects:
    """Tracks which nodes are absent or stopped because of faults, in one attempt of a run. A restart needs a new one.

    ``apply`` returns the actions for a fault that begins or ends: (``kill`` | ``stop`` | ``continue`` | ``leave`` |
    ``start``, node). ``start`` occurs in a run whose other nodes have gone on; see ``starting``.

    asked  the nodes that have been asked to leave, in that order; some may have left since
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        # by node: the reasons of its absence (a fault's number, or a kind), and whether each reason ends
        self._absent: defaultdict[str, dict[int | str, bool]] = defaultdict(dict)
        self._stopped: defaultdict[str, set[int]] = defaultdict(set)  # by node: active pauses of its present process
        self.asked: list[str] = []
        for fault in plan.faults:
            for node in fault.targets if fault.kind == "join" else ():
                self._absent[node]["join"] = True

    def apply(self, due: Due) -> list[tuple[str, str]]:
        """Return the actions to take, in the order of the targets."""
        actions = [(self._action(due, node), node) for node in due.fault.targets]
        return [(action, node) for action, node in actions if action]

    def _action(self, due: Due, node: str) -> str:
        absent = self._absent[node]
        stopped = self._stopped[node]
        kind = due.fault.kind
        if kind == "kill" and due.begins:
            absent[due.number] = math.isfinite(due.fault.for_s)
            stopped.clear()
            return "kill"
        if kind == "leave":
            absent["leave"] = False
            self.asked.append(node)
            return "leave"
        if kind in ("kill", "join"):
            absent.pop("join" if kind == "join" else due.number, None)
            return "" if absent else "start"
        if kind != "pause" or (self._is_away(node) if due.begins else due.number not in stopped):
            return ""
        (stopped.add if due.begins else stopped.discard)(due.number)
        return "stop" if due.begins else "" if stopped else "continue"

    def left(self, nodes: Iterable[str]) -> None:
        """Note which nodes have left the run, which they do by themselves after a round that the Plan names.

        Only workers are noted: a server that left with the last of its workers comes back when one of them joins.
        """
        for node in nodes:
            if self._plan.node(node).role == "worker":
                self._absent[node]["leave"] = False

    def _is_away(self, node: str) -> bool:
        """Return whether a node has no process, because it or its server is absent.

        A leaving node does not count as away, as it first ends its round.
        """
        return any(reason != "leave" for name in (node, *self._servers(node)) for reason in self._absent[name])

    def _servers(self, node: str) -> list[str]:
        """Return the local server of a worker, together with which it ends and starts; nothing for other nodes."""
        return [name for name in self._plan.node(node).parents if self._plan.node(name).role == "server"]

    def returns(self, node: str) -> bool:
        """Return whether all reasons of the node's absence end."""
        return all(self._absent[node].values())

    def starting(self, node: str) -> tuple[str, ...]:
        """Return the nodes to start when ``node`` comes back: those of ``needed_with`` that are not absent.

        Nothing if the node or its server is still absent; the node then starts together with its server.
        """
        if any(self._absent[name] for name in (node, *self._servers(node))):
            return ()
        return tuple(name for name in needed_with(self._plan, node) if not self._absent[name])


def with_faults(network: NetworkPlan, faults: Iterable[FaultPlan]) -> NetworkPlan:
    """Return the network with the faults of links in their traces."""
    by_link = _by_target(faults, (*_CHANGED, "loss"))
    links = (_hit(link, by_link[link.name]) if link.name in by_link else link for link in network.links)
    return replace(network, links=tuple(links))


def slowed(nodes: tuple[NodePlan, ...], faults: Iterable[FaultPlan]) -> tuple[NodePlan, ...]:
    """Return the nodes with the faults of devices in their slowdowns."""
    by_node = _by_target(faults, ("slow",))

    def slower(node: NodePlan) -> NodePlan:
        slowdown = overlaid(node.device.slowdown, 1.0, by_node[node.name], _law("slow"))
        return replace(node, device=replace(node.device, slowdown=slowdown))

    return tuple(slower(node) if node.name in by_node else node for node in nodes)


def _by_target(faults: Iterable[FaultPlan], kinds: Sequence[str]) -> dict[str, list[FaultPlan]]:
    found: defaultdict[str, list[FaultPlan]] = defaultdict(list)
    for fault in faults:
        for name in fault.targets if fault.kind in kinds else ():
            found[name].append(fault)
    return found


def _hit(link: LinkPlan, faults: Sequence[FaultPlan]) -> LinkPlan:
    traces: dict[str, Series | None] = {}
    for kind, (trace, name) in _CHANGED.items():
        base = getattr(link, trace)
        usual = getattr(link, name) if name else 1.0
        traces[trace] = overlaid(base, usual, [fault for fault in faults if fault.kind == kind], _law(kind))
    own_burst = link.loss_burst_packets
    losses = [fault for fault in faults if fault.kind == "loss"]

    def worst(own: float, active: Sequence[FaultPlan]) -> tuple[float, float]:
        return worst_loss((own, own_burst), [(fault.value, fault.burst or own_burst) for fault in active])

    traces["loss_trace"] = overlaid(link.loss_trace, link.loss, losses, lambda own, active: worst(own, active)[0])
    bursts = overlaid(link.loss_trace, link.loss, losses, lambda own, active: worst(own, active)[1], own_burst)
    traces["burst_trace"] = bursts
    changed: dict[str, Any] = {name: series for name, series in traces.items() if series is not None}
    return replace(link, **changed)


def _law(kind: str) -> Law:
    return lambda own, active: LAWS[kind](own, [fault.value for fault in active])


def overlaid(
    base: Series | None, usual: float, faults: Sequence[FaultPlan], law: Law, without: float | None = None
) -> Series | None:
    """Combine a series with faults by ``law``. Return ``base`` itself if the faults change nothing.

    base     the series without faults; ``None``: the constant ``usual``
    without  the result where no fault is active, if it is not the value of the series

    A series that repeats is written out until the last fault has ended (a permanent one: has begun), and repeats later.
    Raise ``ScenarioError`` if that takes too many points.
    """
    own = base or Series(times_s=(0.0,), values=(usual,))
    values = set(own.values)
    faults = [fault for fault in faults if any(law(value, [fault]) != _or(without, value) for value in values)]
    ends_s = [(fault.at_s or 0.0) + (fault.for_s if math.isfinite(fault.for_s) else 0.0) for fault in faults]
    written_out = _written_out(own, max(ends_s, default=0.0))
    found = [(time_s, law(value, active), _or(without, value)) for time_s, value, active in pieces(written_out, faults)]
    if all(value == undisturbed for _, value, undisturbed in found):
        return base if without is None else None
    kept = [i for i in range(len(found)) if i == 0 or found[i][1] != found[i - 1][1]]
    changes = own.repeats and found[kept[-1]][0] > written_out.repeats_from_s  # in the part that repeats
    sources = dict.fromkeys((own.source, *(fault.kind for fault in faults)))
    return Series(
        times_s=tuple(found[i][0] for i in kept),
        values=tuple(found[i][1] for i in kept),
        period_s=own.period_s if changes else math.inf,
        repeats_from_s=written_out.repeats_from_s if changes else 0.0,
        source=" and ".join(filter(None, sources)),
    )


def _or(without: float | None, value: float) -> float:
    return value if without is None else without


def _written_out(base: Series, until_s: float) -> Series:
    """Return the same function of time, written out so that it repeats only from ``until_s`` on, or later."""
    if not base.repeats:
        return base
    assert base.repeats_from_s == 0
    laps = math.ceil(until_s / base.period_s)
    if (laps + 1) * len(base.times_s) > MOST_POINTS:
        raise ScenarioError(
            f"faults: a fault at {until_s:g} s falls into lap {laps} of the trace '{base.source}', which would be "
            f"written out with {(laps + 1) * len(base.times_s)} points, more than {MOST_POINTS}; let the fault "
            "begin or end earlier, or resample the trace (testbed trace FILE --resample '1 s' --out SHORT.csv)"
        )
    times = tuple(lap * base.period_s + time_s for lap in range(laps + 1) for time_s in base.times_s)
    return replace(base, times_s=times, values=base.values * (laps + 1), repeats_from_s=laps * base.period_s)
