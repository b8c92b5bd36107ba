"""A model as segments in forward order, each with its own keys, for segmented computation and communication."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from testbed.training.shapes import key_ranges


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment: a module that maps the previous segment's output to the next one's input, and its keys."""

    name: str
    module: nn.Module
    keys: range

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Its tensors, in the order of ``keys``."""
        return list(self.module.parameters())


def segments(model: nn.Module) -> tuple[Segment, ...]:
    """Return the top-level children of a ``Sequential``; any other model is one segment. They share no parameters."""
    blocks = _children(model) if isinstance(model, nn.Sequential) else [("model", model)]
    counts = tuple(len(list(block.parameters())) for _, block in blocks)
    total = len(list(model.parameters()))
    assert sum(counts) == total, "two blocks share a parameter, so neither has its whole gradient"
    ranges = key_ranges(counts)
    return tuple(Segment(name, block, keys) for (name, block), keys in zip(blocks, ranges, strict=True))


def _children(model: nn.Sequential) -> list[tuple[str, nn.Module]]:
    """Return all children; ``named_children`` would omit a repeated one."""
    return [(name, module) for name, module in model.named_modules(remove_duplicate=False) if name and "." not in name]
