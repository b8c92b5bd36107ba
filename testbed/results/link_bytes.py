"""Bytes of links by data centre: the traffic of a user's program, whose messages are not recorded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def sent_by_link(links: pd.DataFrame) -> dict[str, int]:
    """Return the bytes that each WAN link has sent by its last sample, frames with their headers."""
    sums = counts(links, ["bytes"]).groupby("link")["bytes"].sum()
    return {str(name): int(sent) for name, sent in sums.items()}


def counts(links: pd.DataFrame, counters: list[str]) -> pd.DataFrame:
    """Return ``link`` and what each cumulative counter has counted since the link's sample before.

    A counter that fell had begun anew, as those of simulated links do at a restart.
    """
    now = links[counters].astype(float)
    before = now.groupby(links["link"]).ffill().groupby(links["link"]).shift().fillna(0.0)
    return links[["link"]].join((now - before).where(now >= before, now))


def by_site(sent: Mapping[str, int], sites: Iterable[str]) -> dict[str, dict[str, int]]:
    """Return what each data centre's own links carried: ``up`` away from it, ``down`` to it."""
    found = {site: {"up": 0, "down": 0} for site in sites}
    for link, size in sent.items():
        source, _, target = link.partition(">")
        for site, way in ((source, "up"), (target, "down")):
            if site in found:
                found[site][way] += size
    return found
