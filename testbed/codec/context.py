"""The place of a codec in a run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CodecContext:
    """The connection that a codec serves.

    tier          1: workers to their server (LAN); 2: local servers to the global servers (WAN)
    contributors  number of nodes whose contributions are summed to a value; ``None``: unknown. Bounds ``sparse-sum``
    seed          seed of all random draws
    sender        the node whose contributions the codec encodes, the same at both ends; empty: unknown
    changes       whether contributions are changes of models. Momentum correction would multiply these, and clipping
                  would cut them off, so the codec uses plain error feedback
    """

    tier: int = 2
    contributors: int | None = None
    seed: int = 0
    changes: bool = False
    sender: str = ""
