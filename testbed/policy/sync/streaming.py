"""Streaming: parts of the model, its fragments, are synchronised in turns, while workers go on with local steps.

Douillard et al., Streaming DiLoCo with overlapping communication, 2025 (arXiv 2501.18512). With P fragments a round has
1/P of the local steps and sends one fragment, so the highest rate that is needed falls to about 1/P. What comes back
may be awaited some steps later; then it is mixed with what the worker has by that time.

Or what the worker has done meanwhile is put on top of it, as if it had begun there (CoCoDC: Zhu et al., 2025, arXiv
2504.17672). With s what the worker had when it sent, n what it has now and v the new value, for each tensor:

    g ← s − n                                what its steps meanwhile add up to, as a gradient
    c ← g ⊙ g ⊙ (v − s)                      how that changes from s to v, in the terms of DC-ASGD
    θ ← v − g − λ (‖g‖ / ‖c‖) c

Of CoCoDC only abstracts could be read: a Taylor expansion, from "local parameter and delayed global parameter changes",
which g and v − s are; its formulas could not. The sign follows from the expansion, g(v) ≈ g + H (v − s) with g ⊙ g for
the Hessian H. The weight is that of DC-S3GD (Rigazzi, 2019, arXiv 1911.02516), whose λ is 0.2: then neither the scale
of g nor a division by numbers of steps matters. The one public program that was found does the same line by line (a
repository without a paper's name; functions ``init_dc_state`` and ``sync_dc_diloco``). CoCoDC's adaptive transmission,
which chooses the fragment to send next by how much parameters have changed, is not here: fragments take turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Streaming:
    """How fragments take turns.

    fragments      how many, in turns; all of them together are the model
    overlap_steps  local steps of the next round that are made before the new values are awaited
    mixing         share of a worker's own values when new ones come that late
    compensation   λ, where its steps meanwhile are put on top of them instead; ``None``: they are mixed
    """

    fragments: int
    overlap_steps: int
    mixing: float
    compensation: float | None = None


def steps_between(h: int, fragments: int, round_: int) -> int:
    """Return the local steps of ``round_``, which sends one of the fragments: h in as many rounds as there are."""
    return (round_ + 1) * h // fragments - round_ * h // fragments


def fragments_of(sizes: Sequence[int], count: int) -> tuple[tuple[int, ...], ...]:
    """Return the keys of each fragment, ascending, so that fragments are about equally large.

    sizes  elements of each key. The largest is placed first, each in the smallest fragment so far.
    """
    keys: list[list[int]] = [[] for _ in range(count)]
    elements = [0] * count
    for key in sorted(range(len(sizes)), key=lambda key: (-sizes[key], key)):
        smallest = min(range(count), key=lambda fragment: (elements[fragment], fragment))
        keys[smallest].append(key)
        elements[smallest] += sizes[key]
    return tuple(tuple(sorted(fragment)) for fragment in keys)
