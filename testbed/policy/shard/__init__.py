"""The shard axis: which key, or slice of a key, lives on which server."""

from __future__ import annotations

from testbed.policy.shard.hashed import Hashed

SHARDS = {"hashed": Hashed}
