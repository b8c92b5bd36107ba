"""Streaming: the fragments (parts) of the model are synchronised in turns, while workers go on with local steps.

Douillard et al., Streaming DiLoCo with overlapping communication, 2025 (arXiv 2501.18512). With P fragments a round has
1/P of the local steps and sends one fragment, so the peak rate falls to about 1/P. The worker may make some further
steps before it takes the new values of the fragment. Then it mixes them with its own current values.

Alternatively, the worker repeats on top of the new values the change that its steps have made meanwhile (CoCoDC: Zhu et
al., 2025, arXiv 2504.17672). For each tensor, let s be the worker's values when it sent the fragment, n its values now,
and v the new values:

    g ← s − n                                the sum of its steps meanwhile, as a gradient
    c ← g ⊙ g ⊙ (v − s)                      the change of that gradient from s to v, as DC-ASGD estimates it
    θ ← v − g − λ (‖g‖ / ‖c‖) c

Only abstracts of CoCoDC could be read, not its formulas. They describe a Taylor expansion from "local parameter and
delayed global parameter changes": these are g and v − s. The sign follows from the expansion, g(v) ≈ g + H (v − s) with
g ⊙ g for the Hessian H. The weight is that of DC-S3GD (Rigazzi, 2019, arXiv 1911.02516), with λ = 0.2 there: it makes
the result independent of the scale of g and of a division by numbers of steps. The only public program that was found
does the same line by line (a repository without a paper's name; functions ``init_dc_state`` and ``sync_dc_diloco``).
CoCoDC's adaptive transmission, which sends the fragment next whose parameters have changed most, is not implemented.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Streaming:
    """How fragments take turns.

    fragments      number of fragments; all of them together are the model
    overlap_steps  local steps that a worker makes after it has sent a fragment, before it waits for the new values
    mixing         share of the worker's own values when it mixes them with new values after ``overlap_steps``
    compensation   λ, if the worker repeats its steps on top of the new values; ``None``: it mixes values
    """

    fragments: int
    overlap_steps: int
    mixing: float
    compensation: float | None = None


def steps_between(h: int, fragments: int, round_: int) -> int:
    """Return the local steps of ``round_``, which sends one fragment; ``fragments`` rounds in a row have h steps."""
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
