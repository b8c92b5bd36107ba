"""The roles of workers in paradigms without servers: the paradigm axis' table of this package."""

from __future__ import annotations

from collections.abc import Callable

from testbed.engine.collectives.roles import allreduce_worker
from testbed.engine.gossip.roles import gossip_worker
from testbed.world import Role

WITHOUT_SERVERS: dict[str, Callable[..., Role]] = {
    "allreduce": allreduce_worker,
    "gossip": gossip_worker,
}
