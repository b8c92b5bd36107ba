"""How the workers of a data centre sum among themselves: by a collective of this project's, or by a library's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SERVERS = "servers"  # of ``hips``: workers do not, their local server sums


@dataclass(frozen=True, slots=True)
class Inside:
    """``library``: it has connections of its own. ``on_gpu``: it sums on the workers' GPUs, and by their own links."""

    library: bool = False
    on_gpu: bool = False


INSIDE = {"ring": Inside(), "gloo": Inside(library=True), "nccl": Inside(library=True, on_gpu=True)}


def inside_of(options: Mapping[str, Any]) -> Inside | None:
    """Return how workers sum inside, by the options of a paradigm; ``None`` if they do not."""
    return INSIDE.get(options.get("inside", SERVERS))
