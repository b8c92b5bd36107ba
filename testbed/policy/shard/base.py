"""The contract of a sharding: which key, or slice of a key, lives on which server.

``docs/axes/shard.md`` explains it with a worked example.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from testbed.policy.shard.slices import Slice
from testbed.preset import Preset


class Shard(ABC):
    """Made as ``cls(cls.Options(...))``. Every child of the servers computes the same placement by itself.

    presets  named techniques that use this class; a subclass does not inherit them
    """

    presets: ClassVar[tuple[Preset, ...]] = ()
    Options: ClassVar[type[Any]]

    @abstractmethod
    def __init__(self, options: Any) -> None: ...

    @abstractmethod
    def slices(self, sizes: tuple[int, ...], servers: int) -> tuple[Slice, ...]:
        """Return slices of keys with ``sizes`` elements over ``servers`` servers, by key, then by position.

        Together they cover every element once; wire keys count from 0 in that order (``numbered``).
        """
