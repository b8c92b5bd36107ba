"""The shard axis: which key, or slice of a key, lives on which server."""

from __future__ import annotations

from testbed.axes import Axis
from testbed.policy.shard.base import Shard
from testbed.policy.shard.hashed import Hashed
from testbed.policy.shard.multigps import MultiGps

SHARDS: Axis[Shard] = Axis("shard", {"hashed": Hashed, "multigps": MultiGps}, base=Shard)
