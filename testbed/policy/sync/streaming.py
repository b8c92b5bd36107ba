"""Streaming: parts of the model, its fragments, are synchronised in turns, while workers go on with local steps.

Douillard et al., Streaming DiLoCo with overlapping communication, 2025 (arXiv 2501.18512). With P fragments a round has
1/P of the local steps and sends one fragment, so the highest rate that is needed falls to about 1/P. What comes back
may be awaited some steps later; then it is mixed with what the worker has by that time.

Or what the worker has done meanwhile is put on top of it, as if it had begun there (CoCoDC: Zhu et al., 2025, arXiv
2504.17672). With s what the worker had when it sent, n what it has now, v the new value, τ the steps between and H
those of a whole round of the model, in the terms of DC-ASGD:

    g ← (n − s) / τ          the worker's mean step
    θ ← v + τ (g + λ g ⊙ g ⊙ (v − s) / H)

CoCoDC's abstract says so much, and names a Taylor expansion; its formula could not be read, nor any code of it found,
and is from memory.
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
    steps          local steps between two outer steps of a parameter (H)
    """

    fragments: int
    overlap_steps: int
    mixing: float
    compensation: float | None = None
    steps: int = 1


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
