"""Faults that a scenario causes on purpose. ``testbed.plan.faults``, which knows all nodes, looks up those they hit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import Field, dataclass, fields

from testbed.declaration import Problem, key_of, option, required

NODE_KINDS = ("kill", "pause", "slow", "join", "leave")
LINK_KINDS = ("down", "rate", "loss", "delay", "corrupt", "duplicate", "reorder")
PACKET_KINDS = ("duplicate", "reorder")  # need single packets, which a simulation of flows does not have
ROUND_KINDS = ("nan", "disk_full", "attack")
MEMBER_KINDS = ("join", "leave")  # need a run whose membership may change
KINDS = (*NODE_KINDS, *LINK_KINDS, *ROUND_KINDS)
ATTACKS = ("sign_flip", "scale", "noise", "copy")
_NEEDS_END = ("pause", "slow")


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """An interval from which the seed draws a time."""

    start_s: float = required(unit="s", key="from")
    """Earliest time, since the start of training."""
    end_s: float = required(unit="s", min=1e-6, key="to")
    """Latest time, since the start of training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault. Some keys are for faults of certain kinds only."""

    # a field with ``of`` is only for faults of those kinds, which need it unless it is ``optional``

    kind: str = required(choices=KINDS)
    """Nodes: kill (SIGKILL), pause (SIGSTOP), slow, join (absent until then), leave (on purpose, between two rounds),
    nan (a gradient), attack (what a worker pushes), disk_full. Links: down, rate, loss, delay, corrupt, duplicate,
    reorder (packets)."""
    node: str | None = None
    """The node that the fault hits, e.g. 'tokyo/worker0'; with '*', all nodes that match, e.g. '*/server0'."""
    data_center: str | None = None
    """Hits all nodes of a data centre; a fault of links hits all its links, in both directions."""
    link: str | None = None
    """The link that the fault hits: 'virginia>tokyo' in one direction, 'virginia<>tokyo' in both; with '*', all links
    that match."""
    pick: int | None = option(None, min=1, max=1000)
    """How many of the matching nodes or links are hit; the seed draws them. By default all."""
    at_s: float | None = option(None, unit="s")
    """Time since the start of training."""
    sometime: Window | None = None
    """A time that the seed draws, e.g. {from: 5 s, to: 20 s}."""
    round: int | None = option(None, max=10_000_000)
    """The fault happens when the first worker ends this round (nan, disk_full: in this round; attack: from this round
    on; leave: after this round of the node that leaves)."""
    duration_s: float | None = option(None, unit="s", min=1e-6, key="for")
    """How long the fault lasts; by default to the end of the run."""
    every_s: float | None = option(None, unit="s", min=1e-6)
    """Time from one fault to the next, 'times' faults in all: {for: 1 s, every: 2 s, times: 5} makes a link flap."""
    times: int | None = option(None, min=1, max=10_000)
    """How often the fault happens in all."""
    factor: float | None = option(None, above=1, max=1e6, of=("slow",))
    """slow: how many times slower."""
    rate_bps: float | None = option(None, unit="bit/s", of=("rate",))
    """rate: the link's rate during the fault."""
    loss: float | None = option(None, unit="share", of=("loss",))
    """loss: share of packets that the link loses during the fault."""
    burst: float | None = option(None, min=1, max=1000, of=("loss",), optional=True)
    """loss: mean length of a burst of losses, in packets (Gilbert-Elliott)."""
    delay_s: float | None = option(None, unit="s", max=10.0, of=("delay",))
    """delay: the link's one-way delay during the fault."""
    share: float | None = option(None, unit="share", of=("corrupt", "duplicate", "reorder"))
    """corrupt: share of packets with one wrong bit. duplicate: share of packets that arrive twice. reorder: share of
    packets that overtake others."""
    rounds: int | None = option(None, min=1, max=10_000_000, of=("disk_full",), optional=True)
    """disk_full: number of rounds for which the disk is full; by default 1."""
    attack: str | None = option(None, choices=ATTACKS, of=("attack",))
    """attack: what the worker pushes instead of its contribution. sign_flip: its negative. scale: a multiple. noise:
    Gaussian noise on top. copy: its contribution to the round in which the attack began, again and again."""
    strength: float | None = option(None, above=0, max=1e6, of=("attack",), optional=True)
    """attack: by how much a contribution is multiplied (sign_flip, scale); the noise's standard deviation, in root mean
    squares of the tensor (noise). By default 1, which has no effect on scale."""

    @property
    def hits_links(self) -> bool:
        return self.kind in LINK_KINDS

    @property
    def value(self) -> float:
        """The value that goes with the fault's kind (factor, rate, share, …); 0 for a kind without a value."""
        if self.kind == "disk_full":
            return float(self.rounds or 1)
        if self.kind == "attack":
            return self.strength or 1.0
        needed = [getattr(self, field.name) for field in _of_kinds(self) if _is_needed(field, self.kind)]
        return float(needed[0]) if needed and needed[0] is not None else 0.0

    def problems(self) -> Iterator[Problem]:
        yield from _targets(self)
        yield from _when(self)
        yield from _repetition(self)
        yield from _how(self)


def _of_kinds(fault: Fault) -> Iterator[Field[object]]:
    """Yield the fields that are only for faults of certain kinds."""
    return (field for field in fields(fault) if "of" in field.metadata)


def _is_needed(field: Field[object], kind: str) -> bool:
    return kind in field.metadata["of"] and not field.metadata.get("optional")


def _targets(fault: Fault) -> Iterator[Problem]:
    named = [key for key in ("node", "data_center", "link") if getattr(fault, key) is not None]
    allowed = ("data_center", "link") if fault.hits_links else ("node", "data_center")
    for key in named:
        if key not in allowed:
            yield key, f"has no effect on '{fault.kind}'", f"write '{allowed[0]}' or '{allowed[1]}'"
    if len(named) != 1:
        problem = f"names {' and '.join(named)}" if named else "has no target"
        yield (), problem, f"write one of '{allowed[0]}' and '{allowed[1]}'"


def _when(fault: Fault) -> Iterator[Problem]:
    times = {"at": fault.at_s, "sometime": fault.sometime, "round": fault.round}
    given = [key for key, value in times.items() if value is not None]
    if len(given) != 1:
        problem = f"has {' and '.join(given)}" if given else "never happens"
        yield (), problem, "write one of 'at: 10 s', 'sometime: {from: 5 s, to: 20 s}' and 'round: 7'"
    if fault.sometime is not None and fault.sometime.end_s <= fault.sometime.start_s:
        problem = f"{fault.sometime.end_s:g} s does not come after {fault.sometime.start_s:g} s"
        yield ("sometime", "to"), problem, ""
    if fault.round is not None and (fault.hits_links or fault.kind == "slow"):
        yield "round", f"'{fault.kind}' happens at a time", "write 'at: 10 s'"
    if fault.round is None and fault.kind in ROUND_KINDS and given:
        yield given[0], f"'{fault.kind}' happens in a round", "write 'round: 7'"


def _repetition(fault: Fault) -> Iterator[Problem]:
    given = [key for key, value in (("every", fault.every_s), ("times", fault.times)) if value is not None]
    if given and fault.kind in (*ROUND_KINDS, *MEMBER_KINDS):
        cure = "remove 'every' and 'times'; write a fault for each time"
        yield given[0], f"'{fault.kind}' happens once", cure
    elif len(given) == 1:
        yield (), "'every' and 'times' belong together", "write both, or neither"
    elif fault.every_s is not None and fault.round is not None:
        yield "every", "has no effect beside 'round'", "write 'at'"
    elif fault.every_s is not None and fault.every_s <= (fault.duration_s or 0.0):
        yield "every", f"{fault.every_s:g} s is not longer than the {fault.duration_s:g} s that each one lasts", ""
    elif fault.times is not None and fault.times > 1 and fault.duration_s is None:
        yield "times", "the first fault never ends", "write 'for: 1 s'"


def _how(fault: Fault) -> Iterator[Problem]:
    for field in _of_kinds(fault):
        is_given = getattr(fault, field.name) is not None
        if is_given and fault.kind not in field.metadata["of"]:
            yield key_of(field), f"has no effect on '{fault.kind}'", "remove it"
        if not is_given and _is_needed(field, fault.kind):
            yield (), f"'{fault.kind}' needs '{key_of(field)}'", f"write '{key_of(field)}: …'"
    if fault.kind in _NEEDS_END and fault.duration_s is None:
        yield (), f"'{fault.kind}' has no end", "write 'for: 5 s'"
    if fault.kind in MEMBER_KINDS and fault.duration_s is not None:
        hint = "takes a node away" if fault.kind == "join" else "takes a node away for a while"
        yield "for", f"has no effect on '{fault.kind}'", f"remove it; a fault of kind 'kill' {hint}"
    if fault.kind in ROUND_KINDS and fault.duration_s is not None:
        yield "for", f"has no effect on '{fault.kind}'", "write 'rounds'" if fault.kind == "disk_full" else "remove it"
    if fault.attack == "scale" and fault.value == 1:
        yield "strength", "'scale' by 1 changes nothing", "write 'strength: 10'"
    if fault.attack == "copy" and fault.strength is not None:
        yield "strength", "has no effect on 'copy'", "remove it"
