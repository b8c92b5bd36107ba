"""Bytes of links by data centre: the traffic of a user's program, whose messages are not recorded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def sent_by_link(links: pd.DataFrame) -> dict[str, int]:
    """Return the bytes that each WAN link has sent by its last sample, frames with their headers."""
    return {str(name): int(sent) for name, sent in links.groupby("link")["bytes"].max().items()}


def by_site(sent: Mapping[str, int], sites: Iterable[str]) -> dict[str, dict[str, int]]:
    """Return what each data centre's own links carried: ``up`` away from it, ``down`` to it."""
    found = {site: {"up": 0, "down": 0} for site in sites}
    for link, size in sent.items():
        source, _, target = link.partition(">")
        for site, way in ((source, "up"), (target, "down")):
            if site in found:
                found[site][way] += size
    return found
