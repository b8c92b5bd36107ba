"""The place of a codec in a run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CodecContext:
    """The connection that a codec serves.

    tier          1: workers to their server (LAN); 2: local servers to the global servers (WAN)
    contributors  nodes whose contributions make up a value, where that is known; it bounds ``sparse-sum``
    seed          of everything that is drawn by chance
    sender        the node whose contributions it encodes, at both ends; empty where that is not known
    changes       contributions are changes of models, which momentum correction would multiply, and clipping cut off:
                  plain error feedback
    """

    tier: int = 2
    contributors: int | None = None
    seed: int = 0
    changes: bool = False
    sender: str = ""
