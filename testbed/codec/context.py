"""The place of a codec in a run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CodecContext:
    """The connection that a codec serves.

    tier          1: workers to their server (LAN); 2: local servers to the global servers (WAN)
    contributors  children whose contributions make up a value, where that is known; it bounds ``sparse-sum``
    seed          of everything that is drawn by chance
    changes       contributions are changes of models, which momentum correction would multiply: plain error feedback
    """

    tier: int = 2
    contributors: int | None = None
    seed: int = 0
    changes: bool = False
