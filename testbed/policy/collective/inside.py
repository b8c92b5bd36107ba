"""How the workers of a data centre sum among themselves: by a collective of this project's, or by a library's."""

from __future__ import annotations

from dataclasses import dataclass

SERVERS = "servers"  # of ``hips``: workers do not, their local server sums


@dataclass(frozen=True, slots=True)
class Inside:
    """``library``: it has connections of its own. ``on_gpu``: it sums on the workers' GPUs, and by their own links."""

    library: bool = False
    on_gpu: bool = False
