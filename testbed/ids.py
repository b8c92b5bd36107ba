"""Makes the names of nodes and links, and takes them apart.

A node is ``<data centre>/<role><number>``: ``virginia/worker0``, ``virginia/server0``, ``virginia/global0``,
``virginia/scheduler``. A directed link is ``<from>><to>``: ``virginia>tokyo``. A name is 1-32 characters: a-z
first, then a-z, 0-9, '-'.
"""

from __future__ import annotations

import re
import unicodedata

MAX_NAME = 32
NAME_PATTERN = re.compile(r"[a-z][a-z0-9-]{0,31}")
NAME_RULE = "1-32 characters: a-z first, then a-z 0-9 '-'"


def slug(text: str) -> str:
    """Return a valid name for any label: ``Zürich (CH)`` is ``zurich-ch``; empty if no character is usable."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    words = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")
    return (words if words[:1].isalpha() else f"n{words}" if words else "")[:MAX_NAME].rstrip("-")


def name_cure(text: str) -> str:
    """Return advice on how to write ``text``, which is not a valid name."""
    made = slug(text)
    return f"write '{made}', of {NAME_RULE}" if made else NAME_RULE


def node_name(data_center: str, role: str, number: int | None = None) -> str:
    """``node_name("tokyo", "worker", 0)`` is ``"tokyo/worker0"``."""
    return f"{data_center}/{role}" if number is None else f"{data_center}/{role}{number}"


def data_center_of(node: str) -> str:
    """``"tokyo"`` for ``"tokyo/worker0"``."""
    return node.split("/", 1)[0]


def link_name(source: str, target: str) -> str:
    return f"{source}>{target}"
