"""WAN links of a scenario: in both directions or in one, and from one form to the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any

from pydantic import Field

from testbed import units
from testbed.scenario.reading.quantities import (
    DELAY,
    DURATION,
    INSTANT,
    LOSS,
    NAME,
    RATE,
    FieldType,
    number,
    refuse,
    text_of,
)
from testbed.scenario.reading.section import NULLABLE, Made, ReadAs, Section, changes_of
from testbed.scenario.reading.violations import Violation
from testbed.scenario.topology.traces import LinkTrace, trace

SiteName = Annotated[str, NAME]
_ENDS = {"between": None, "source": None, "target": None, "reverse": None}


_LONGEST_QUEUES = {"bytes": "16 GiB", "s": "60 s", "bdp": "1000 bdp"}


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue's length as written: ``bytes``, ``s`` (at the link's rate) or ``bdp`` (of the link's own round trip)."""

    unit: str
    amount: float

    @classmethod
    def parse(cls, text: str) -> Queue:
        """From ``256 KiB``, ``50 ms`` or ``1.5 bdp``. Raise ``UnitError``."""
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


class Outage(Section):
    """The link is down, and loses everything, from ``at`` until ``until``."""

    at: Annotated[float, INSTANT]
    """Time since the start of training."""
    until: Annotated[float, DURATION]
    """Time since the start of training at which it is up again."""


class Impairments(Section):
    """Part of a link; counts for both directions."""

    loss_burst: Annotated[float, number(1, 1000)] = 1.0
    """Mean length of a burst of losses, in packets (Gilbert-Elliott); 1 means independent losses."""
    corruption: Annotated[float, LOSS] = 0.0
    """Share of packets with one wrong bit, which the receiver's checksum finds."""
    duplication: Annotated[float, LOSS] = 0.0
    """Share of packets that arrive twice. Emulated with netem only."""
    reordering: Annotated[float, LOSS] = 0.0
    """Share of packets that skip the delay, and so overtake those before them."""
    down: tuple[Outage, ...] = ()
    """When the link is down, e.g. [{at: 10 s, until: 15 s}]."""

    def _violations(self) -> Iterator[Violation]:
        """Each outage ends after it began, and before the next."""
        for index, outage in enumerate(self.down):
            if outage.until <= outage.at:
                problem = f"{outage.until:g} s does not come after {outage.at:g} s"
                yield Violation(("down", index, "until"), problem)
        for index, (before, after) in enumerate(pairwise(self.down), start=1):
            if after.at <= before.until:
                problem = f"{after.at:g} s comes before the end of the one before, {before.until:g} s"
                yield Violation(("down", index, "at"), problem)


class LinkEnds(Section):
    """The two ends of a link, in both directions (``between``) or in one (``from`` and ``to``)."""

    between: Annotated[tuple[SiteName, SiteName] | None, NULLABLE] = None
    """The two ends; what follows counts for both directions."""
    source: Annotated[str | None, NAME] = Field(default=None, alias="from")
    """Where one direction begins."""
    target: Annotated[str | None, NAME] = Field(default=None, alias="to")
    """Where it ends."""

    @property
    def directions(self) -> list[tuple[str, str]]:
        """The ordered pairs of ends that the link joins."""
        if self.between is not None:
            first, second = self.between
            return [(first, second), (second, first)]
        return [(str(self.source), str(self.target))]


class LinkBothWays(LinkEnds, Impairments):
    """A WAN link; one with both ends in ``between`` is the same in both directions."""

    rate: Annotated[float, RATE]
    """Bits per second, Ethernet frames counted."""
    delay: Annotated[float, DELAY]
    """One-way delay; the round trip is twice as long."""
    queue: Annotated[Queue | None, _QUEUE] = None
    """Length of the queue in front: bytes, time at the link's rate, or multiples of rate x 2 x delay ('1.5 bdp')."""
    loss: Annotated[float, LOSS] = 0.0
    """Share of packets lost at random."""
    jitter: Annotated[float, DELAY] = 0.0
    """Standard deviation of the delay."""
    rate_trace: Annotated[LinkTrace | None, trace("rate")] = None
    """A rate that changes while training runs; it replaces 'rate' meanwhile."""
    delay_trace: Annotated[LinkTrace | None, trace("delay")] = None
    """A one-way delay that changes; it replaces 'delay' meanwhile."""
    loss_trace: Annotated[LinkTrace | None, trace("loss")] = None
    """A loss that changes; it replaces 'loss' meanwhile."""


LINK_VALUES = ("rate", "delay", "queue", "loss", "jitter", "rate_trace", "delay_trace", "loss_trace")
REVERSE = ReadAs(changes_of(LinkBothWays, "LinkValues", "What differs in the opposite direction.", *LINK_VALUES))
LINK_CHANGE = changes_of(
    LinkBothWays,
    "LinkChange",
    "What differs on one link, in both directions (``between``) or in one.",
    *LINK_VALUES,
    base=(LinkEnds, Made),
)


class Link(LinkBothWays):
    """A WAN link, in both directions (``between``) or in one (``from`` and ``to``)."""

    reverse: Annotated[Section | None, REVERSE] = None
    """What differs in the opposite direction."""

    def _violations(self) -> Iterator[Violation]:
        yield from super()._violations()
        one_way_ends = (self.source, self.target)
        if self.between is not None and one_way_ends != (None, None):
            yield Violation((), "has both 'between' and 'from'/'to'", "keep one of them")
        elif self.between is None and None in one_way_ends:
            yield Violation((), "has no ends", "write 'between: [a, b]', or 'from: a' and 'to: b'")
        elif self.between is None and self.reverse is not None:
            yield Violation(("reverse",), "has no effect on a one-way link", "write 'between: [a, b]'")
        own = dict(_multiples_of_nothing(self))
        yield from own.values()
        for key, found in _multiples_of_nothing(changed(self, self.reverse)) if self.reverse is not None else ():
            if key not in own:
                at = found.at if getattr(self.reverse, key) is not None else ()
                yield Violation(("reverse", *at), found.problem, found.hint)
        ends = self.between or one_way_ends
        if ends[0] is not None and ends[0] == ends[1]:
            yield Violation(("between",) if self.between else ("to",), f"both ends are '{ends[0]}'")


def _multiples_of_nothing(link: Link) -> Iterator[tuple[str, Violation]]:
    """Yield keys whose values are multiples of a loss or a delay that is 0, each with what is wrong."""
    for what in ("loss", "delay"):
        trace: LinkTrace | None = getattr(link, f"{what}_trace")
        if getattr(link, what) == 0 and trace is not None and trace.model is not None:
            problem = f"has no effect, as '{what}' is 0"
            hint = f"its values are multiples of '{what}'"
            yield f"{what}_trace", Violation((f"{what}_trace", "model"), problem, hint)
    if link.delay == 0 and link.queue is not None and link.queue.unit == "bdp":
        problem = "has no length, as 'delay' is 0"
        yield "queue", Violation(("queue",), problem, "write bytes, or time at the link's rate: '20 ms'")


def changed(link: Link, values: Section) -> Link:
    """Return ``link`` with these values.

    A ``rate`` (``delay``, ``loss``) also replaces the points of a trace there. The values of a model are multiples of
    it, so that a model stays, unless they would all be 0.
    """
    changes = {key: value for key in LINK_VALUES if (value := getattr(values, key)) is not None}
    for what in ("rate", "delay", "loss"):
        trace: LinkTrace | None = getattr(link, f"{what}_trace")
        if what in changes and (changes[what] == 0 or trace is None or trace.model is None):
            changes.setdefault(f"{what}_trace", None)
    return link.model_copy(update=changes)


def one_way(links: Iterable[Link]) -> dict[tuple[str, str], Link]:
    """Return every direction of ``links`` as a link with ``source`` and ``target``, by these ends."""
    found: dict[tuple[str, str], Link] = {}
    for link in links:
        if link.between is None:
            found[str(link.source), str(link.target)] = link
            continue
        a, b = link.between
        back = changed(link, link.reverse) if link.reverse else link
        found[a, b] = link.model_copy(update={**_ENDS, "source": a, "target": b})
        found[b, a] = back.model_copy(update={**_ENDS, "source": b, "target": a})
    return found


def joined(by_ends: dict[tuple[str, str], Link]) -> tuple[Link, ...]:
    """Return the inverse of ``one_way``: equal links of opposite directions become one ``between``."""
    found: list[Link] = []
    done: set[tuple[str, str]] = set()
    for (a, b), link in by_ends.items():
        if (a, b) in done:
            continue
        back = by_ends.get((b, a))
        if back is not None and back.model_copy(update=_ENDS) == link.model_copy(update=_ENDS):
            done.add((b, a))
            found.append(link.model_copy(update={**_ENDS, "between": (a, b)}))
        else:
            found.append(link)
    return tuple(found)
