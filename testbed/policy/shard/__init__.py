"""The shard axis: which key, or slice of a key, lives on which server."""

from __future__ import annotations

from typing import Any

from testbed.policy.shard.hashed import Hashed
from testbed.policy.shard.multigps import MultiGps

SHARDS: dict[str, type[Any]] = {"hashed": Hashed, "multigps": MultiGps}
