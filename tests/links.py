"""A Plan with a link of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from testbed.plan.model import Plan


def with_link(base: Plan, name: str, **values: Any) -> Plan:
    """Return ``base`` with one directed link changed."""
    changed = tuple(replace(link, **values) if link.name == name else link for link in base.network.links)
    return replace(base, network=replace(base.network, links=changed))
