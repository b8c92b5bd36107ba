"""The section ``faults``: what a scenario breaks on purpose.

The rules of this module need no Plan: which keys go with which kind. ``testbed.plan.faults`` looks names up, where all
nodes and links are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

from pydantic import Field

from testbed.scenario.reading.quantities import (
    DELAY,
    DURATION,
    INSTANT,
    RATE,
    SHARE,
    TEXT,
    integer,
    number,
    one_of,
)
from testbed.scenario.reading.section import NULLABLE, Section
from testbed.scenario.reading.violations import Violation

NODE_KINDS = ("kill", "pause", "slow", "join", "leave")
LINK_KINDS = ("down", "rate", "loss", "delay", "corrupt", "duplicate", "reorder")
PACKET_KINDS = ("duplicate", "reorder")  # need packets, which the virtual world does not have
ROUND_KINDS = ("nan", "disk_full")
MEMBER_KINDS = ("join", "leave")  # need a run whose membership may change
KINDS = (*NODE_KINDS, *LINK_KINDS, *ROUND_KINDS)
# the key that holds the value of a kind
_VALUES = {
    "slow": "factor", "rate": "rate", "loss": "loss", "delay": "delay", "disk_full": "rounds",
    "corrupt": "share", "duplicate": "share", "reorder": "share",
}  # fmt: skip
_OPTIONAL = {"loss": ("burst",)}  # further keys of a kind
_NEEDS_END = ("pause", "slow")


class Window(Section):
    """An interval from which the seed draws a time."""

    start: Annotated[float, INSTANT] = Field(alias="from")
    """Earliest."""
    end: Annotated[float, DURATION] = Field(alias="to")
    """Latest."""


class Fault(Section):
    """One fault."""

    kind: Annotated[str, one_of(*KINDS)]
    """Nodes: kill (SIGKILL), pause (SIGSTOP), slow, join (absent until then), leave (on purpose, between two rounds),
    nan (a gradient), disk_full.
    Links: down, rate, loss, delay, corrupt, duplicate, reorder (packets)."""
    node: Annotated[str | None, TEXT] = None
    """The node that it hits; with '*', all that match: 'tokyo/worker0', '*/server0'."""
    data_center: Annotated[str | None, TEXT] = None
    """All nodes of a data centre; for links: all its links, both ways."""
    link: Annotated[str | None, TEXT] = None
    """The link that it hits, by direction: 'virginia>tokyo'; 'virginia<>tokyo' is both; with '*', all that match."""
    pick: Annotated[int | None, integer(1, 1000)] = None
    """How many of those that match are hit, drawn by the seed; by default all."""
    at: Annotated[float | None, INSTANT] = None
    """Time since the start of training."""
    sometime: Annotated[Window | None, NULLABLE] = None
    """A time that the seed draws, e.g. {from: 5 s, to: 20 s}."""
    round: Annotated[int | None, integer(0, 10_000_000)] = None
    """At the end of this round of the first worker (nan, disk_full: in this round; leave: after its own)."""
    duration: Annotated[float | None, DURATION] = Field(default=None, alias="for")
    """How long it lasts; by default to the end of the run."""
    every: Annotated[float | None, DURATION] = None
    """Again after this time, 'times' times in all: {for: 1 s, every: 2 s, times: 5} makes a link flap."""
    times: Annotated[int | None, integer(1, 10_000)] = None
    """How often it happens in all."""
    factor: Annotated[float | None, number(1, 1e6, above=True)] = None
    """slow: how many times slower."""
    rate: Annotated[float | None, RATE] = None
    """rate: the link's rate meanwhile."""
    loss: Annotated[float | None, SHARE] = None
    """loss: share of packets lost meanwhile."""
    burst: Annotated[float | None, number(1, 1000)] = None
    """loss: mean length of a burst of losses, in packets (Gilbert-Elliott)."""
    delay: Annotated[float | None, DELAY] = None
    """delay: the link's one-way delay meanwhile."""
    share: Annotated[float | None, SHARE] = None
    """corrupt: share of packets with one wrong bit. duplicate: of those that arrive twice. reorder: of those that
    overtake others."""
    rounds: Annotated[int | None, integer(1, 10_000_000)] = None
    """disk_full: for how many rounds."""

    @property
    def hits_links(self) -> bool:
        return self.kind in LINK_KINDS

    @property
    def value(self) -> float:
        """The value of its kind (factor, rate, share, …); 0 for a kind without one. A disk is full for one round."""
        return float(getattr(self, _VALUES.get(self.kind, ""), None) or (self.kind == "disk_full"))

    def _violations(self) -> Iterable[Violation]:
        return (*_targets(self), *_when(self), *_how(self))


def _targets(fault: Fault) -> Iterator[Violation]:
    named = [key for key in ("node", "data_center", "link") if getattr(fault, key) is not None]
    allowed = ("data_center", "link") if fault.hits_links else ("node", "data_center")
    for key in named:
        if key not in allowed:
            yield Violation((key,), f"has no effect on '{fault.kind}'", f"write '{allowed[0]}' or '{allowed[1]}'")
    if len(named) != 1:
        problem = f"names {' and '.join(named)}" if named else "has no target"
        yield Violation((), problem, f"write one of '{allowed[0]}' and '{allowed[1]}'")


def _when(fault: Fault) -> Iterator[Violation]:
    given = [key for key in ("at", "sometime", "round") if getattr(fault, key) is not None]
    if len(given) != 1:
        problem = f"says {' and '.join(given)}" if given else "never happens"
        yield Violation((), problem, "write one of 'at: 10 s', 'sometime: {from: 5 s, to: 20 s}' and 'round: 7'")
    if fault.sometime is not None and fault.sometime.end <= fault.sometime.start:
        yield Violation(("sometime", "to"), f"{fault.sometime.end:g} s does not come after {fault.sometime.start:g} s")
    if fault.round is not None and (fault.hits_links or fault.kind == "slow"):
        yield Violation(("round",), f"'{fault.kind}' happens at a time", "write 'at: 10 s'")
    if fault.round is None and fault.kind in ROUND_KINDS and given:
        yield Violation((given[0],), f"'{fault.kind}' happens in a round", "write 'round: 7'")
    yield from _repetition(fault)


def _repetition(fault: Fault) -> Iterator[Violation]:
    given = [key for key in ("every", "times") if getattr(fault, key) is not None]
    if given and fault.kind in (*ROUND_KINDS, *MEMBER_KINDS):
        yield Violation(
            (given[0],), f"'{fault.kind}' happens once", "remove 'every' and 'times'; write a fault for each time"
        )
    elif (fault.every is None) != (fault.times is None):
        yield Violation((), "'every' and 'times' belong together", "write both, or neither")
    elif fault.every is not None and fault.round is not None:
        yield Violation(("every",), "has no effect beside 'round'", "write 'at'")
    elif fault.every is not None and fault.every <= (fault.duration or 0.0):
        yield Violation(
            ("every",), f"{fault.every:g} s is not longer than the {fault.duration:g} s that each one lasts"
        )
    elif fault.times is not None and fault.times > 1 and fault.duration is None:
        yield Violation(("times",), "the first one lasts for good", "write 'for: 1 s'")


def _how(fault: Fault) -> Iterator[Violation]:
    needed = _VALUES.get(fault.kind)
    takes = (needed, *_OPTIONAL.get(fault.kind, ()))
    for key in dict.fromkeys((*_VALUES.values(), *(key for keys in _OPTIONAL.values() for key in keys))):
        given: Any = getattr(fault, key)
        if given is not None and key not in takes:
            yield Violation((key,), f"has no effect on '{fault.kind}'", "remove it")
        if given is None and key == needed and fault.kind != "disk_full":
            yield Violation((), f"'{fault.kind}' says no {key}", f"write '{key}: …'")
    if fault.kind in _NEEDS_END and fault.duration is None:
        yield Violation((), f"'{fault.kind}' has no end", "write 'for: 5 s'")
    if fault.kind in MEMBER_KINDS and fault.duration is not None:
        hint = "takes a node away" if fault.kind == "join" else "takes a node away for a while"
        yield Violation(("for",), f"has no effect on '{fault.kind}'", f"remove it; a fault of kind 'kill' {hint}")
    if fault.kind in ROUND_KINDS and fault.duration is not None:
        hint = "remove it" if fault.kind == "nan" else "write 'rounds'"
        yield Violation(("for",), f"has no effect on '{fault.kind}'", hint)
