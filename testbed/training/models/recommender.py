"""Embedding tables of categories below a perceptron, as in neural collaborative filtering (He et al., WWW 2017)."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn

from testbed.training.options.models import Recommender


class CategoryTable(nn.Module):
    """int64 [batch, fields] to float32 [batch, (fields + 1) * width]: the categories' rows, and their product."""

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(rows, width)

    def forward(self, records: Tensor) -> Tensor:
        rows = self.table(records % self.table.num_embeddings)
        return torch.cat([rows.flatten(1), rows.prod(dim=1)], dim=1)


def recommender(options: Recommender, record_shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """Logits [batch, classes] of records. A segment is the table, or a layer."""
    inputs = (record_shape[0] + 1) * options.width
    return nn.Sequential(
        OrderedDict(
            table=CategoryTable(options.rows, options.width),
            dense=nn.Sequential(nn.Linear(inputs, options.hidden), nn.ReLU()),
            output=nn.Linear(options.hidden, classes),
        )
    )
