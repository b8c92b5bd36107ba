"""Closed forms of what collectives cost in the α–β–γ model, which schedules walked by ``predict`` are held to.

Thakur, Rabenseifner and Gropp, 2005. Every pair of ranks has a link of its own, and ranks start together.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, log2

from testbed.policy.collective.predict import LinkCost


def message_s(link: LinkCost, size_bytes: float) -> float:
    """One message, and adding it."""
    return link.copy_s(size_bytes) + size_bytes * link.gamma_s


def ring_s(ranks: int, size_bytes: float, link: LinkCost) -> float:
    """2 (p − 1) α + 2 (p − 1)/p n β + (p − 1)/p n γ."""
    part = size_bytes / ranks
    return (ranks - 1) * (message_s(link, part) + link.copy_s(part))


def butterfly_s(ranks: int, size_bytes: float, link: LinkCost) -> float:
    """As the ring's bytes in 2 log2 p steps; two more steps of n, and n γ, when p is no power of two."""
    if ranks == 1:
        return 0.0
    power = 1 << ranks.bit_length() - 1
    steps, share = log2(power), (power - 1) / power * size_bytes
    time_s = 2 * steps * link.alpha_s + share * (2 * link.beta_s + link.gamma_s)
    fold_s = message_s(link, size_bytes) + link.copy_s(size_bytes)
    return time_s + (fold_s if power != ranks else 0.0)


def recursive_doubling_s(ranks: int, size_bytes: float, link: LinkCost) -> float:
    """log2 p (α + n β + n γ); at most two more steps of n when p is no power of two."""
    if ranks == 1:
        return 0.0
    power = 1 << ranks.bit_length() - 1
    fold_s = message_s(link, size_bytes) + link.copy_s(size_bytes)
    return log2(power) * message_s(link, size_bytes) + (fold_s if power != ranks else 0.0)


def binomial_tree_s(ranks: int, size_bytes: float, link: LinkCost) -> float:
    """⌈log2 p⌉ (2 α + 2 n β + n γ); an upper bound when p is no power of two."""
    return ceil(log2(ranks)) * (message_s(link, size_bytes) + link.copy_s(size_bytes))


def tree_s(ranks: int, size_bytes: float, link: LinkCost, segments: int = 1) -> float:
    """Binary tree of depth d in s segments: 2 d α + (2 d + s − 1) n/s β + (d + s − 1) n/s 2 γ.

    Up and down go in opposite directions and overlap, so the way down adds d steps only.
    """
    depth, part = ranks.bit_length() - 1, size_bytes / segments
    if not depth:
        return 0.0
    adding_s = (depth + segments - 1) * part * (2 if ranks > 2 else 1) * link.gamma_s
    return 2 * depth * link.alpha_s + (2 * depth + segments - 1) * part * link.beta_s + adding_s


def double_binary_tree_s(ranks: int, size_bytes: float, link: LinkCost) -> float:
    """≈ 2 ⌈log2 p⌉ α + 2 n β + n γ: every rank has one port and sends and receives n twice; many segments."""
    if ranks == 1:
        return 0.0
    return 2 * ceil(log2(ranks)) * link.alpha_s + size_bytes * (2 * link.beta_s + link.gamma_s)


def blueconnect_s(groups: int, members: int, size_bytes: float, inside: LinkCost, across: LinkCost) -> float:
    """2 (g − 1)(α + n/g β) inside and 2 (G − 1)(α + n/G β) across, where the g rings share the group's uplink."""
    return ring_s(members, size_bytes, inside) + ring_s(groups, size_bytes, across)


def three_phase_ring_s(groups: int, members: int, size_bytes: float, inside: LinkCost, across: LinkCost) -> float:
    """As BlueConnect, and twice α + (g − 1) n/g β: each member sends its share to the representative, and gets one."""
    shares_s = inside.alpha_s + (members - 1) / members * size_bytes * inside.beta_s
    return blueconnect_s(groups, members, size_bytes, inside, across) + 2 * shares_s


def torus2d_s(columns: int, rows: int, size_bytes: float, along_rows: LinkCost, along_columns: LinkCost) -> float:
    """2 (X − 1)(α + n/X β) along rows, 2 (Y − 1)(α + n/(X Y) β) along columns, every link a rank's own."""
    return ring_s(columns, size_bytes, along_rows) + ring_s(rows, size_bytes / columns, along_columns)


def line_s(ranks: int, size_bytes: float, link: LinkCost) -> float:
    """As the ring, and ⌊(k − 1)/2⌋ n/k γ: ranks inside the line add what comes from both sides one after the other."""
    both_sides_s = (ranks - 1) // 2 * size_bytes / ranks * link.gamma_s
    return ring_s(ranks, size_bytes, link) + both_sides_s


def mesh2d_s(columns: int, rows: int, size_bytes: float, along_rows: LinkCost, along_columns: LinkCost) -> float:
    """2 (X − 1)(α + n/X β) along rows, 2 (Y − 1)(α + n/(X Y) β) along columns, by neighbours alone."""
    return line_s(columns, size_bytes, along_rows) + line_s(rows, size_bytes / columns, along_columns)


def gather_scatter_s(ranks: int, size_bytes: float, link: LinkCost) -> float:
    """The ring, and 2 (log2 p α + (p − 1)/p n β) to the root and back; p a power of two."""
    rooted_s = log2(ranks) * link.alpha_s + (ranks - 1) / ranks * size_bytes * link.beta_s
    return ring_s(ranks, size_bytes, link) + 2 * rooted_s


def direct_s(ranks: int, size_bytes: float, link: LinkCost) -> float:
    """2 α + 2 n/p β + (p − 1)/p n γ: every pair of ranks has a link of its own, and all are used at once."""
    if ranks == 1:
        return 0.0
    part = size_bytes / ranks
    return 2 * link.copy_s(part) + (ranks - 1) * part * link.gamma_s


Cost = Callable[[int, float, LinkCost], float]

ON_EQUAL_LINKS: dict[str, Cost] = {
    "tree": tree_s,
    "binomial_tree": binomial_tree_s,
    "double_binary_tree": double_binary_tree_s,
    "butterfly": butterfly_s,
    "recursive_doubling": recursive_doubling_s,
    "ring": ring_s,
    "direct": direct_s,
}


def crossover_bytes(small: Cost, large: Cost, ranks: int, link: LinkCost) -> float:
    """The size from which ``large`` is faster than ``small``: both costs are lines in the size. inf or 0 if never."""
    small_0, large_0 = small(ranks, 0, link), large(ranks, 0, link)
    unit = 1e9
    small_slope = (small(ranks, unit, link) - small_0) / unit
    large_slope = (large(ranks, unit, link) - large_0) / unit
    if small_slope <= large_slope:
        return float("inf") if small_0 <= large_0 else 0.0
    return max(0.0, (large_0 - small_0) / (small_slope - large_slope))
