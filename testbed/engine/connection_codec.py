"""The codec at one end of a connection between a server and a child, from the Plan or chosen by a script."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from testbed.codec.base import Codec
from testbed.codec.table import make_codec
from testbed.engine import sync_setup
from testbed.plan.model import Plan

CodecChoice = tuple[str, dict[str, Any]]  # the codec that a script has chosen, and its options
CodecMaker = Callable[..., Codec]  # takes nothing, or a CodecChoice (``None``: the scenario's)


def codec_maker(plan: Plan, server: str) -> CodecMaker:
    """Return what makes one end of a connection of ``server`` to a child; a script chooses over the WAN only."""
    node = plan.node(server)
    tier = 1 if node.role == "server" else 2
    planned = plan.technique.codec_tier1 if tier == 1 else plan.technique.codec_tier2
    members = len(sync_setup.contributors(plan, node))

    def make(choice: CodecChoice | None = None) -> Codec:
        kind, options = choice if choice and tier == 2 else (planned.kind, planned.options)
        return make_codec(kind, options, tier, members, plan.seed)

    return make
