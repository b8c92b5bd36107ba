"""Names of nodes and links, made and taken apart in one place.

A node is ``<data centre>/<role><number>``: ``virginia/worker0``, ``virginia/server0``, ``virginia/global0``,
``virginia/scheduler``. A directed link is ``<from>><to>``: ``virginia>tokyo``. A name is 1-32 characters: a-z
first, then a-z, 0-9, '-'.
"""

from __future__ import annotations

import re

NAME_PATTERN = re.compile(r"[a-z][a-z0-9-]{0,31}")


def node_name(data_center: str, role: str, number: int | None = None) -> str:
    """``node_name("tokyo", "worker", 0)`` is ``"tokyo/worker0"``."""
    return f"{data_center}/{role}" if number is None else f"{data_center}/{role}{number}"


def data_center_of(node: str) -> str:
    """``"tokyo"`` for ``"tokyo/worker0"``."""
    return node.split("/", 1)[0]


def link_name(source: str, target: str) -> str:
    return f"{source}>{target}"
