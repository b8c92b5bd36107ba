"""WAN links of a scenario, for both directions or for one, and the conversion between these two forms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, Any

from testbed import units
from testbed.declaration import Problem, item, option, required
from testbed.scenario.reading.declared import changes_of
from testbed.scenario.reading.quantities import FieldType, refuse, text_of
from testbed.scenario.topology.traces import LinkTrace, SeededTrace, trace
from testbed.settings.network import OneWay

SiteName = Annotated[str, item(form="name")]
_ENDS: dict[str, Any] = {"between": None, "source": "", "target": "", "reverse": None}


_LONGEST_QUEUES = {"bytes": "16 GiB", "s": "60 s", "bdp": "1000 bdp"}


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue's length in the unit in which it was written.

    The unit is ``bytes``, ``s`` (seconds at the link's rate) or ``bdp`` (the link's rate times its own round trip).
    """

    unit: str
    amount: float

    @classmethod
    def parse(cls, text: str) -> Queue:
        """Parse a text such as ``256 KiB``, ``50 ms`` or ``1.5 bdp``. Raise ``UnitError``."""
        if text.endswith("bdp"):
            return cls("bdp", float(units.parse_number(text.removesuffix("bdp").rstrip())))
        try:
            return cls("bytes", units.parse_size(text))
        except units.UnitError as no_size:
            try:
                return cls("s", units.parse_duration(text))
            except units.UnitError:
                raise units.UnitError(no_size.problem, "write '256 KiB', '50 ms' or '1.5 bdp'") from None

    def __str__(self) -> str:
        if self.unit == "bytes":
            return units.format_size(int(self.amount))
        return units.format_duration(self.amount) if self.unit == "s" else f"{units.format_number(self.amount)} bdp"


def _read_queue(value: Any) -> Queue:
    if isinstance(value, Queue):
        return value
    try:
        queue = Queue.parse(text_of(value))
    except units.UnitError as error:
        raise refuse(error.problem, error.hint) from error
    most = Queue.parse(_LONGEST_QUEUES[queue.unit])
    if not 0 < queue.amount <= most.amount:
        raise refuse(f"{text_of(value)} is outside (0, {_LONGEST_QUEUES[queue.unit]}]")
    return queue


_QUEUE = FieldType(_read_queue, {"type": "string", "examples": ["256 KiB", "50 ms", "1.5 bdp"]}, str)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """From ``at`` to ``until``, the link is down and loses everything."""

    at_s: float = required(unit="s")
    """Time since the start of training."""
    until_s: float = required(unit="s", min=1e-6)
    """Time since the start of training at which the link is up again."""


class _Ends:
    """The two ends of a link: ``between`` is for both directions, ``source`` and ``target`` are for one."""

    __slots__ = ()
    between: tuple[str, str] | None
    source: str
    target: str

    @property
    def directions(self) -> list[tuple[str, str]]:
        """The ordered pairs of ends that the link joins."""
        if self.between is not None:
            first, second = self.between
            return [(first, second), (second, first)]
        return [(self.source, self.target)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkBothWays(_Ends, OneWay):
    """A WAN link. If ``between`` names its ends, both directions have the same values."""

    between: tuple[SiteName, SiteName] | None = None
    """The two ends; the other keys apply to both directions."""
    queue: Queue | None = option(None, form=_QUEUE)
    """Length of the queue before the link: bytes, time at the link's rate, or multiples of rate x 2 x delay ('1.5
    bdp')."""
    rate_trace: LinkTrace | None = option(None, form=trace("rate"))
    """A rate that changes over time; while training runs, it replaces 'rate'."""
    delay_trace: LinkTrace | None = option(None, form=trace("delay"))
    """A one-way delay that changes over time; while training runs, it replaces 'delay'."""
    loss_trace: LinkTrace | None = option(None, form=trace("loss"))
    """A loss that changes over time; while training runs, it replaces 'loss'."""
    down: tuple[Outage, ...] = ()
    """When the link is down, e.g. [{at: 10 s, until: 15 s}]."""


LINK_VALUES = ("rate_bps", "delay_s", "queue", "loss", "jitter_s", "rate_trace", "delay_trace", "loss_trace")
_REVERSE = changes_of(LinkBothWays, "LinkValues", "What differs in the opposite direction.", *LINK_VALUES)
LINK_CHANGE = changes_of(
    LinkBothWays,
    "LinkChange",
    "What differs on one link, in both directions (``between``) or in one.",
    *("between", "source", "target", *LINK_VALUES),
    bases=(_Ends,),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link(LinkBothWays):
    """A WAN link, in both directions (``between``) or in one (``from`` and ``to``)."""

    reverse: Any | None = option(None, section=_REVERSE)
    """What differs in the opposite direction."""

    def problems(self) -> Iterator[Problem]:
        yield from self._problems_of_outages()
        ends = self.between or (self.source, self.target)
        if self.between is not None and (self.source or self.target):
            yield (), "has both 'between' and 'from'/'to'", "keep one of them"
        elif "" in ends:
            yield (), "has no ends", "write 'between: [a, b]', or 'from: a' and 'to: b'"
        elif self.between is None and self.reverse is not None:
            yield "reverse", "has no effect on a one-way link", "write 'between: [a, b]'"
        own = dict(_multiples_of_nothing(self))
        yield from own.values()
        for key, (at, problem, cure) in _multiples_of_nothing(changed(self, self.reverse)) if self.reverse else ():
            if key not in own:
                yield ("reverse", *(at if getattr(self.reverse, key) is not None else ())), problem, cure
        if ends[0] and ends[0] == ends[1]:
            yield "between" if self.between else "to", f"both ends are '{ends[0]}'", ""

    def _problems_of_outages(self) -> Iterator[Problem]:
        """Each outage must end after it begins, and before the next one begins."""
        for index, outage in enumerate(self.down):
            if outage.until_s <= outage.at_s:
                problem = f"{outage.until_s:g} s does not come after {outage.at_s:g} s"
                yield ("down", index, "until"), problem, ""
        for index, (before, after) in enumerate(pairwise(self.down), start=1):
            if after.at_s <= before.until_s:
                problem = f"{after.at_s:g} s comes before the end of the one before, {before.until_s:g} s"
                yield ("down", index, "at"), problem, ""


def _multiples_of_nothing(link: Link) -> Iterator[tuple[str, tuple[tuple[str, ...], str, str]]]:
    """Yield each key whose values are multiples of a loss or delay that is 0, and the problem there."""
    for what, value in (("loss", link.loss), ("delay", link.delay_s)):
        if value == 0 and isinstance(getattr(link, f"{what}_trace"), SeededTrace):
            hint = f"its values are multiples of '{what}'"
            yield f"{what}_trace", ((f"{what}_trace", "model"), f"has no effect, as '{what}' is 0", hint)
    if link.delay_s == 0 and link.queue is not None and link.queue.unit == "bdp":
        cure = "write bytes, or time at the link's rate: '20 ms'"
        yield "queue", (("queue",), "has no length, as 'delay' is 0", cure)


def changed(link: Link, values: Any) -> Link:
    """Return ``link`` with the given values.

    A new ``rate``, ``delay`` or ``loss`` also removes the link's trace of that quantity if the trace consists of
    points. A trace from a model has multiples of the new value, so it stays unless that value is 0.
    """
    changes = {name: value for name in LINK_VALUES if (value := getattr(values, name)) is not None}
    for name, trace_name in (("rate_bps", "rate_trace"), ("delay_s", "delay_trace"), ("loss", "loss_trace")):
        if name in changes and (changes[name] == 0 or not isinstance(getattr(link, trace_name), SeededTrace)):
            changes.setdefault(trace_name, None)
    return replace(link, **changes)


def one_way(links: Iterable[Link]) -> dict[tuple[str, str], Link]:
    """Return each direction of ``links`` as a one-way link, by its source and target."""
    found: dict[tuple[str, str], Link] = {}
    for link in links:
        if link.between is None:
            found[link.source, link.target] = link
            continue
        a, b = link.between
        back = changed(link, link.reverse) if link.reverse else link
        found[a, b] = replace(link, **{**_ENDS, "source": a, "target": b})
        found[b, a] = replace(back, **{**_ENDS, "source": b, "target": a})
    return found


def joined(by_ends: dict[tuple[str, str], Link]) -> tuple[Link, ...]:
    """Undo ``one_way``: join links of opposite directions that have equal values into one link with ``between``."""
    found: list[Link] = []
    done: set[tuple[str, str]] = set()
    for (a, b), link in by_ends.items():
        if (a, b) in done:
            continue
        back = by_ends.get((b, a))
        if back is not None and replace(back, **_ENDS) == replace(link, **_ENDS):
            done.add((b, a))
            found.append(replace(link, **{**_ENDS, "between": (a, b)}))
        else:
            found.append(link)
    return tuple(found)
