"""The composition matrix in Markdown: a row for each value, a column for each axis, and the reasons below."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from testbed.scenario.matrix import AXES, DEFAULTS, Cell, needed, refusals

Kinds = dict[str, list[str]]  # by axis


def markdown(cells: Iterable[Cell]) -> str:
    """Return the whole matrix, as it stands in scenarios/README.md."""
    cells = list(cells)
    reasons = list(dict.fromkeys(cell.refused for cell in cells if cell.refused))
    marks = {reason: chr(ord("a") + number) for number, reason in enumerate(reasons)}
    works = sum(cell.refused is None for cell in cells)
    head = (
        f"{works} of {len(cells)} pairs work, and so does whatever is made of such pairs only; the others are refused:"
    )
    notes = [f"* ({mark}) {reason}" for reason, mark in marks.items()]
    return "\n".join([head, "", *_table(cells, marks), "", *notes, "", *_needs(cells), "", *_tiers()]) + "\n"


def _table(cells: list[Cell], marks: dict[str, str]) -> list[str]:
    refused: dict[tuple[str, str, str], Kinds] = defaultdict(lambda: defaultdict(list))
    for cell in cells:
        if cell.refused:
            for mine, other in ((0, 1), (1, 0)):
                at = (cell.axes[mine], cell.kinds[mine], cell.axes[other])
                refused[at][marks[cell.refused]].append(cell.kinds[other])
    rows = [f"| | {' | '.join(AXES)} |", "|---" * (len(AXES) + 1) + "|"]
    for axis, kinds in AXES.items():
        for kind in kinds:
            texts = ["" if other == axis else _cell(refused[axis, kind, other]) for other in AXES]
            rows.append(f"| {axis} `{kind}` | {' | '.join(texts)} |")
    return rows


def _cell(refused: Kinds) -> str:
    texts = [f"{', '.join(kinds)} ({mark})" for mark, kinds in refused.items()]
    return f"not {'; '.join(texts)}" if texts else "all"


def _needs(cells: list[Cell]) -> list[str]:
    """Return the lines about values and pairs that need further settings."""
    alone: dict[str, list[str]] = defaultdict(list)
    for axis, kinds in AXES.items():
        for kind in kinds:
            for need in needed({axis: kind}):
                alone[need].append(f"`{kind}`")
    together: dict[tuple[str, str, str], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for cell in cells:
        for need in set(cell.needs) - set(alone):
            together[need, *cell.axes][cell.kinds[0]].append(cell.kinds[1])
    lines = [f"* `{need}`: {', '.join(kinds)}" for need, kinds in alone.items()]
    for (need, *_), pairs in sorted(together.items()):
        joined: dict[str, list[str]] = defaultdict(list)
        for first, second in pairs.items():
            joined[", ".join(f"`{kind}`" for kind in second)].append(f"`{first}`")
        lines += [f"* `{need}`: {', '.join(first)} with {second}" for second, first in joined.items()]
    return ["Some need something beside them:", "", *lines]


def _tiers() -> list[str]:
    """Return the lines about which algorithm may stand on tier 2 above which on tier 1."""
    lines = []
    for below in AXES["sync"]:
        above = [kind for kind in AXES["sync"] if not tier_refusals(below, kind)]
        if above:
            lines.append(f"* `{below}` below {', '.join(f'`{kind}`' for kind in above)}")
    return ["Synchronisation, tier 1 below tier 2 (codecs and overlays of the two tiers are free):", "", *lines]


def tier_refusals(tier1: str, tier2: str) -> list[str]:
    """Return why ``sync: {tier1: …, tier2: …}`` is refused, with the optimizer where it must be."""
    sync = {"tier1": {"kind": tier1}, "tier2": {"kind": tier2}}
    return refusals({"paradigm": DEFAULTS["paradigm"], "sync": tier1}, {"sync": sync})
