"""A state as a message: tensors, joined by type, and in the header their names and shapes, and all other content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from testbed.state import State


def packed(state: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[Tensor, ...]]:
    """Return metadata and parts of a message."""
    by_type: dict[torch.dtype, list[Tensor]] = {}
    layout, rest = [], {}
    for name, content in state.items():
        if not isinstance(content, Tensor):
            rest[name] = content
            continue
        alike = by_type.setdefault(content.dtype, [])
        layout.append([name, list(by_type).index(content.dtype), list(content.shape)])
        alike.append(content.reshape(-1))
    return {"layout": layout, "rest": rest}, tuple(torch.cat(alike) for alike in by_type.values())


def unpacked(meta: Mapping[str, Any], parts: Sequence[Tensor]) -> State:
    """Inverse of ``packed``."""
    state: State = dict(meta["rest"])
    starts = [0] * len(parts)
    for name, part, shape in meta["layout"]:
        start = starts[part]
        starts[part] = stop = start + torch.Size(shape).numel()
        state[name] = parts[part][start:stop].view(shape).clone()
    return state
