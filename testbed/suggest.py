"""Suggests the known word that is nearest to a misspelt one."""

from __future__ import annotations

from collections.abc import Iterable


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return ``did you mean 'density'?``, or an empty text if no known word is near."""
    near = nearest(word, known)
    return f"did you mean '{near}'?" if near else ""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the known word that is nearest to ``word``, or an empty text if none is near.

    Swapping two neighbouring letters counts as one edit. Among equally near words, a word with the same letters wins
    (``fas`` means ``fsa``, not ``hfa``), then the first one.
    """
    ranked = sorted(
        (edit_distance(word.lower(), candidate.lower()), sorted(word) != sorted(candidate), position, candidate)
        for position, candidate in enumerate(known)
    )
    if not ranked:
        return ""
    distance, _, _, found = ranked[0]
    return found if distance < len(found) and distance <= max(1, len(found) // 3) else ""


def nearest_or_all(word: str, known: Iterable[str], most: int | None = None) -> str:
    """Return ``suggestion``, or ``one of …`` with the first ``most`` known words (by default all) if none is near."""
    words = list(known)
    more = ", …" if most and len(words) > most else ""
    return suggestion(word, words) or f"one of {', '.join(words[:most])}{more}"


def edit_distance(first: str, second: str) -> int:
    """Optimal string alignment distance: insertions, deletions, substitutions and swaps of neighbours cost one."""
    rows = [list(range(len(second) + 1))]
    for i, a in enumerate(first, start=1):
        row = [i]
        for j, b in enumerate(second, start=1):
            cost = min(rows[i - 1][j] + 1, row[j - 1] + 1, rows[i - 1][j - 1] + (a != b))
            if i > 1 and j > 1 and a == second[j - 2] and first[i - 2] == b:
                cost = min(cost, rows[i - 2][j - 2] + 1)
            row.append(cost)
        rows.append(row)
    return rows[-1][-1]
