"""The contract of an order: how keys are cut, which slice is sent next, and on which channels.

``docs/axes/order.md`` explains it with a worked example.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

from testbed.policy.shard.slices import Slice
from testbed.preset import Preset


class Order(ABC):
    """Made as ``cls(cls.Options(...))``.

    best_effort  slices travel as blocks, of which some are sent unreliably and may be lost; ``Options`` then derives
                 from ``Dgt.Options``
    presets      named techniques that use this class; a subclass does not inherit them
    """

    best_effort: ClassVar[bool] = False
    presets: ClassVar[tuple[Preset, ...]] = ()
    Options: ClassVar[type[Any]]

    @abstractmethod
    def __init__(self, options: Any) -> None: ...

    @classmethod
    def overlaps(cls, options: Any) -> bool:
        """Return whether a layer is sent as soon as its backward pass is done, while others are being computed."""
        return False

    @classmethod
    def channels(cls, options: Any) -> int:
        """Return the number of unreliable channels beside the reliable one."""
        return 0

    @classmethod
    def needs_loss(cls, options: Any) -> bool:
        """Return whether workers send their training loss along with their pushes."""
        return False

    @classmethod
    def repairs_losses(cls, options: Any) -> bool:
        """Return whether every element arrives exactly, late at worst; models may then be sent, not only gradients."""
        return True

    @abstractmethod
    def cut(self, slices: Iterable[Slice]) -> tuple[Slice, ...]:
        """Cut the slices that the shard axis placed into slices that are sent one by one, numbered from 0."""

    @abstractmethod
    def priority(self, key: int) -> int:
        """Return the priority of a key's messages; of the messages waiting for a connection, the largest goes first."""
