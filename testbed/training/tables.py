"""Finds a model's embedding tables (parameters that are only used for look-ups), and the rows that a batch needs.

It watches a forward pass, in which PyTorch reports every operation to a ``TorchFunctionMode``; so a model need not
declare its tables. As indices depend on the samples and not on the values of parameters, the rows of a batch are known
before the values arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from testbed.training.models import Segment

_LOOK_UPS = (functional.embedding, functional.embedding_bag)  # both take (indices, table, …)


class _Watch(TorchFunctionMode):
    """Notes, by key, the rows that are looked up in each parameter, and the parameters that other operations use."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        super().__init__()
        self._keys = {id(parameter): key for key, parameter in enumerate(parameters)}
        self.rows: dict[int, list[Tensor]] = {}
        self.otherwise: set[int] = set()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        used = [self._keys[id(leaf)] for leaf in tree_leaves((args, kwargs)) if id(leaf) in self._keys]
        if func in _LOOK_UPS:
            for key in used:
                self.rows.setdefault(key, []).append(args[0].detach().flatten())
        elif any(isinstance(leaf, Tensor) for leaf in tree_leaves(result)):  # asking for a size or device is no use
            self.otherwise.update(used)
        return result


class EmbeddingTables:
    """The tables of a model. ``widths``: elements of a row, by key."""

    def __init__(self, segments: Sequence[Segment], sample: Tensor) -> None:
        """``sample``: the inputs of a batch, on the model's device."""
        self._segments = segments
        self._parameters = [parameter for segment in segments for parameter in segment.parameters]
        watch = self._forward(sample)
        self.widths = {key: self._parameters[key].shape[1] for key in sorted(watch.rows.keys() - watch.otherwise)}
        # all rows of a batch are known after the last segment with a table, so later segments need not run
        last = max(self.widths, default=-1)
        self._segments = [segment for segment in segments if segment.keys.start <= last]

    def rows(self, inputs: Tensor) -> dict[int, Tensor]:
        """Return the rows of each table that a batch needs: int64, ascending, in main memory."""
        watch = self._forward(inputs)
        return {key: torch.unique(torch.cat(watch.rows[key])).long().cpu() for key in self.widths}

    @torch.no_grad()
    def _forward(self, inputs: Tensor) -> _Watch:
        activation = inputs
        watch = _Watch(self._parameters)
        with watch:
            for segment in self._segments:
                # run hooks, but not ``torch.compile``'s code: the module would be compiled again for the watch
                activation = segment.module._call_impl(activation)  # type: ignore[no-untyped-call]
        return watch
