"""First in, first out: every message has the same priority and travels whole on the reliable channel."""

from __future__ import annotations

from dataclasses import dataclass


class Fifo:
    """All keys are equal."""

    @dataclass(frozen=True, slots=True)
    class Options:
        """FIFO has no options."""

    def __init__(self, options: Options) -> None:
        pass

    def priority(self, key: int) -> int:
        """Priority of a key's messages; larger goes first."""
        return 0
