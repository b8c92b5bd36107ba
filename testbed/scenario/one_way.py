"""A link in both directions as two one-way links, and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from testbed.scenario.network import Link, Reverse

_ENDS = {"between": None, "source": None, "target": None, "reverse": None}


def one_way(link: Link) -> Iterator[Link]:
    """The directions of a link, each as a link with ``source`` and ``target``."""
    if link.between is None:
        yield link
        return
    a, b = link.between
    yield link.model_copy(update={**_ENDS, "source": a, "target": b})
    back = reversed_link(link, link.reverse) if link.reverse else link
    yield back.model_copy(update={**_ENDS, "source": b, "target": a})


def reversed_link(link: Link, reverse: Reverse) -> Link:
    """The link as it is on the way back. A rate (delay, loss) of its own replaces the trace as well."""
    changes = {key: value for key, value in reverse if value is not None}
    for what in ("rate", "delay", "loss"):
        if what in changes:
            changes.setdefault(f"{what}_trace", None)
    return link.model_copy(update=changes)


def joined(links: Iterable[Link]) -> tuple[Link, ...]:
    """One-way links, with equal ones of opposite directions made one ``between``."""
    by_ends: dict[Any, Link] = {(link.source, link.target): link for link in links}
    found: list[Link] = []
    done: set[Any] = set()
    for (a, b), link in by_ends.items():
        if (a, b) in done:
            continue
        back = by_ends.get((b, a))
        if back is not None and back.model_copy(update=_ENDS) == link.model_copy(update=_ENDS):
            done.add((b, a))
            link = link.model_copy(update={**_ENDS, "between": (a, b)})  # noqa: PLW2901
        found.append(link)
    return tuple(found)
