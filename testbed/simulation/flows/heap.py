"""A heap of transfers, ordered by key and then by number: a skew heap (Sleator and Tarjan 1986)."""

from __future__ import annotations

from testbed.simulation.flows.pools import transfer_at
from testbed.simulation.flows.records import Network, Transfer
from testbed.simulation.machine.record import NONE


def _precedes(one: Transfer, other: Transfer) -> bool:
    return one.key < other.key or (one.key == other.key and one.number < other.number)


def merged(net: Network, one: int, other: int) -> int:
    """Merge two heaps. Return the root; -1 stands for an empty heap."""
    if one == NONE:
        return other
    if other == NONE:
        return one
    if _precedes(transfer_at(net, other), transfer_at(net, one)):
        one, other = other, one
    root = one
    while True:
        it = transfer_at(net, one)
        below = it.right
        it.right = it.left
        if below == NONE:
            it.left = other
            return root
        if _precedes(transfer_at(net, other), transfer_at(net, below)):
            below, other = other, below
        it.left = below
        one = below


def with_transfer(net: Network, root: int, number: int) -> int:
    """Add a transfer to a heap. Return the new root."""
    it = transfer_at(net, number)
    it.left = NONE
    it.right = NONE
    return merged(net, root, number)


def without_first(net: Network, root: int) -> int:
    """Remove the root of a heap. Return the new root."""
    it = transfer_at(net, root)
    return merged(net, it.left, it.right)
