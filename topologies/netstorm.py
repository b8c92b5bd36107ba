"""The changing rates of ``netstorm9``: what ``data/netstorm9.csv`` holds, made again from its seed."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

LOW_MBIT, HIGH_MBIT = 20, 155
STEP_S, DRAWS, SEED = 180, 40, 1
HEADER = """\
# Rates of netstorm9: U{20..155} Mbit/s for each directed link every 180 s (the rule of NetStorm's scripts).
# Drawn by topologies.netstorm with seed 1; the numbers are our own. Licence: CC0.
time_s,src,dst,rate_mbit_s
"""


def redraws(links: Iterable[tuple[str, str]], seed: int = SEED) -> str:
    """The CSV file for these directed links, in their order."""
    links, lines = list(links), []
    random = Random(f"netstorm9/{seed}")
    for draw in range(DRAWS):
        for source, target in links:
            lines.append(f"{draw * STEP_S},{source},{target},{random.randint(LOW_MBIT, HIGH_MBIT)}\n")
    return HEADER + "".join(lines)
