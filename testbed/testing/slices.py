"""Checks of placements: a sharding (``docs/axes/shard.md``), and an order, which cuts what the sharding placed."""

from __future__ import annotations

import random
from collections.abc import Iterable

from testbed.policy.order.base import Order
from testbed.policy.order.dgt import MAX_CHANNELS, Dgt
from testbed.policy.shard import SHARDS
from testbed.policy.shard.base import Shard
from testbed.policy.shard.slices import Slice
from testbed.testing.subject import Subject
from testbed.testing.verdict import require

DEMO_CNN = (400, 16, 12_800, 32, 131_072, 256, 32_768, 128, 1280, 10)
_CASES = 60


def cases() -> list[tuple[tuple[int, ...], int]]:
    """Return sizes of keys and numbers of servers, the smallest first."""
    draw = random.Random(0)
    drawn = [
        (tuple(draw.randint(1, 50_000) for _ in range(draw.randint(1, 20))), draw.randint(1, 9)) for _ in range(_CASES)
    ]
    return [((1,), 1), ((1,), 3), ((5, 1), 2), (DEMO_CNN, 1), (DEMO_CNN, 2), (DEMO_CNN, 4), *drawn]


def _shard(subject: Subject) -> Shard:
    shard: Shard = subject.entry(subject.options)
    return shard


def _order(subject: Subject) -> Order:
    order: Order = subject.entry(subject.options)
    return order


def _covers_once(slices: Iterable[Slice], sizes: tuple[int, ...], servers: int) -> None:
    slices = tuple(slices)
    at = f"{len(sizes)} keys on {servers} servers"
    require(
        [piece.wire_key for piece in slices] == list(range(len(slices))), "wire keys numbered 0, 1, 2, … in order",
        f"{[piece.wire_key for piece in slices][:12]} for {at}", "return numbered(pieces)",
    )  # fmt: skip
    for piece in slices:
        require(
            0 <= piece.server < servers and 0 <= piece.key < len(sizes) and piece.start < piece.stop,
            f"slices with elements, of a key of {len(sizes)}, on a server of {servers}", repr(piece),
            "leave empty slices out",
        )  # fmt: skip
    for key, size in enumerate(sizes):
        mine = [(piece.start, piece.stop) for piece in slices if piece.key == key]
        require(
            [0, *(stop for _, stop in mine)] == [*(start for start, _ in mine), size],
            f"slices that cover key {key} of {size} elements once, in order of position", f"{mine[:6]} for {at}",
            "begin each slice where the one before ends",
        )  # fmt: skip


# ---- shard ----------------------------------------------------------------------------------------------------------


def every_element_is_placed_once(subject: Subject) -> None:
    for sizes, servers in cases():
        _covers_once(_shard(subject).slices(sizes, servers), sizes, servers)


def every_node_computes_the_same_placement(subject: Subject) -> None:
    """Each child of the servers asks an object of its own, and maybe for other sizes before."""
    used = _shard(subject)
    for sizes, servers in cases():
        require(
            used.slices(sizes, servers) == _shard(subject).slices(sizes, servers), "equal placements from every object",
            f"a used and a new one differ for {len(sizes)} keys on {servers} servers",
            "compute the placement from its arguments and options alone",
        )  # fmt: skip


SHARD = (every_element_is_placed_once, every_node_computes_the_same_placement)

# ---- order ----------------------------------------------------------------------------------------------------------


def _placed() -> Iterable[tuple[tuple[int, ...], int, tuple[Slice, ...]]]:
    for kind, shard in SHARDS.shipped.items():
        for sizes, servers in cases()[:20]:
            yield sizes, servers, shard(SHARDS.options(kind, {})).slices(sizes, servers)


def every_element_is_sent_once(subject: Subject) -> None:
    for sizes, servers, placed in _placed():
        cut = tuple(_order(subject).cut(placed))
        _covers_once(cut, sizes, servers)
        for piece in cut:
            (place,) = [each for each in placed if each.key == piece.key and each.start <= piece.start < each.stop]
            require(
                piece.stop <= place.stop and piece.server == place.server, f"slices inside the placed {place}",
                repr(piece),
                "cut slices further, but leave each on its server",
            )  # fmt: skip


def every_node_computes_the_same_order(subject: Subject) -> None:
    used = _order(subject)
    for _, _, placed in _placed():
        first, second = tuple(used.cut(iter(placed))), tuple(_order(subject).cut(placed))
        require(first == second, "equal slices from every object", "a used and a new one differ", "keep no state")
        keys = sorted({piece.key for piece in first})
        for key in keys:
            one, other = used.priority(key), _order(subject).priority(key)
            require(
                isinstance(one, int) and one == other, f"an integer priority of key {key}, the same on every node",
                f"{one!r} and {other!r}", "compute it from the key and the options alone",
            )  # fmt: skip


def best_effort_is_declared_with_its_channels(subject: Subject) -> None:
    entry: type[Order] = subject.entry
    options = subject.options
    channels = entry.channels(options)
    least, most = (1, MAX_CHANNELS) if entry.best_effort else (0, 0)
    require(
        isinstance(channels, int) and least <= channels <= most,
        f"{least} to {most} channels with best_effort = {entry.best_effort}", repr(channels), "correct channels()",
    )  # fmt: skip
    require(
        not entry.best_effort or isinstance(options, Dgt.Options), "Options that derive from Dgt.Options",
        repr(options),
        "write class Options(Dgt.Options), which say how blocks are sent",
    )  # fmt: skip
    if entry.best_effort:
        _as_dgt("channels", entry.channels(options), Dgt.channels(options))
        _as_dgt("needs_loss", entry.needs_loss(options), Dgt.needs_loss(options))
        _as_dgt("repairs_losses", entry.repairs_losses(options), Dgt.repairs_losses(options))
    facts = (entry.overlaps(options), entry.needs_loss(options), entry.repairs_losses(options))
    require(
        all(isinstance(fact, bool) for fact in facts),
        "overlaps, needs_loss and repairs_losses to return True or False",
        repr(facts), "return bool(…)",
    )  # fmt: skip
    require(
        entry.best_effort or facts[2], "repairs_losses = True where all travels on the reliable channel", "False",
        "inherit repairs_losses",
    )  # fmt: skip


ORDER = (every_element_is_sent_once, every_node_computes_the_same_order, best_effort_is_declared_with_its_channels)


def _as_dgt(name: str, told: object, sent: object) -> None:
    """Require that an order tells of itself what Dgt does with its options."""
    require(
        told == sent,
        f"{name} of {sent!r}, as its options say how blocks are sent",
        repr(told),
        f"derive from Dgt, or return Dgt.{name}(options)",
    )
