"""The contract of an order (``docs/axes/order.md``), which cuts the slices of a sharding and ranks the pieces."""

from __future__ import annotations

import random
from collections.abc import Iterator

from testbed.policy.order.base import Order
from testbed.policy.order.dgt import MAX_CHANNELS, Dgt
from testbed.policy.shard import SHARDS
from testbed.policy.shard.slices import Slice
from testbed.testing.requirement import require, requirement
from testbed.testing.subject import Subject

DEMO_CNN = (400, 16, 12_800, 32, 131_072, 256, 32_768, 128, 1280, 10)
_DRAWN = 60
_OF_EACH_SHARDING = 20


def cases() -> list[tuple[tuple[int, ...], int]]:
    """Return sizes of keys and numbers of servers, the smallest first."""
    draw = random.Random(0)
    found: list[tuple[tuple[int, ...], int]] = [((1,), 1), ((1,), 3), ((5, 1), 2)]
    found += [(DEMO_CNN, servers) for servers in (1, 2, 4)]
    for _ in range(_DRAWN):
        sizes = tuple(draw.randint(1, 50_000) for _ in range(draw.randint(1, 20)))
        found.append((sizes, draw.randint(1, 9)))
    return found


def covers_once(slices: tuple[Slice, ...], sizes: tuple[int, ...], servers: int) -> None:
    """Require that the slices are numbered and cover every element of every key once, in order of position."""
    at = f"of {len(sizes)} keys on {servers} servers"
    numbers = [piece.wire_key for piece in slices]
    require(numbers == list(range(len(slices))), f"wire keys {numbers[:12]} {at}", "return numbered(pieces)")
    for piece in slices:
        exists = 0 <= piece.server < servers and 0 <= piece.key < len(sizes) and piece.start < piece.stop
        require(exists, f"{piece} {at}", "leave empty slices out, and count keys and servers from 0")
    for key, size in enumerate(sizes):
        mine = [(piece.start, piece.stop) for piece in slices if piece.key == key]
        starts = [start for start, _ in mine]
        stops = [stop for _, stop in mine]
        require([0, *stops] == [*starts, size], f"slices {mine[:6]} of key {key} with {size} elements, {at}")


def _order(subject: Subject) -> Order:
    order: Order = subject.entry(subject.options)
    return order


def _placed() -> Iterator[tuple[tuple[int, ...], int, tuple[Slice, ...]]]:
    for kind, shard in SHARDS.shipped.items():
        for sizes, servers in cases()[:_OF_EACH_SHARDING]:
            yield sizes, servers, shard(SHARDS.options(kind, {})).slices(sizes, servers)


@requirement("begin each slice where the one before ends")
def every_element_is_sent_once(subject: Subject) -> None:
    """The slices of a cut cover every element once, in order of position, and each lies inside one placed slice."""
    for sizes, servers, placed in _placed():
        cut = tuple(_order(subject).cut(placed))
        covers_once(cut, sizes, servers)
        for piece in cut:
            (place,) = [each for each in placed if each.key == piece.key and each.start <= piece.start < each.stop]
            inside = piece.stop <= place.stop and piece.server == place.server
            require(inside, f"{piece}, cut from {place}", "cut slices further, but leave each on its server")


@requirement("compute cuts and priorities from the arguments and the options alone")
def every_node_computes_the_same_order(subject: Subject) -> None:
    """A new object and a used one make the same cuts, and give a key the same priority, an integer."""
    used = _order(subject)
    for sizes, _, placed in _placed():
        same = tuple(used.cut(iter(placed))) == tuple(_order(subject).cut(placed))
        require(same, "a used object and a new one cut differently")
        for key in range(len(sizes)):
            one = used.priority(key)
            other = _order(subject).priority(key)
            require(isinstance(one, int) and one == other, f"priorities {one!r} and {other!r} of key {key}")


@requirement("derive from Dgt, or tell what Dgt does with the same options")
def best_effort_is_declared_with_its_channels(subject: Subject) -> None:
    """An order with best_effort has Dgt's options and the channels they set (1 to MAX_CHANNELS); others have none."""
    entry: type[Order] = subject.entry
    options = subject.options
    told = {
        "channels": entry.channels(options),
        "overlaps": entry.overlaps(options),
        "needs_loss": entry.needs_loss(options),
        "repairs_losses": entry.repairs_losses(options),
    }
    flags = [value for name, value in told.items() if name != "channels"]
    require(all(isinstance(flag, bool) for flag in flags), str(told), "return bool(…)")
    if not entry.best_effort:
        require(told["channels"] == 0 and told["repairs_losses"], f"{told} without best_effort", "inherit them")
        return
    require(isinstance(options, Dgt.Options), f"Options are {options!r}", "write class Options(Dgt.Options)")
    require(told["channels"] in range(1, MAX_CHANNELS + 1), f"{told['channels']!r} channels")
    sent_with = {
        "channels": Dgt.channels(options),
        "needs_loss": Dgt.needs_loss(options),
        "repairs_losses": Dgt.repairs_losses(options),
    }
    for name, does in sent_with.items():
        require(told[name] == does, f"{name} is {told[name]!r}, but blocks are sent with {does!r}")
