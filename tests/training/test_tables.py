"""Which parameters are tables follows from their use, and the rows of a batch from its samples."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from testbed.training.models import segments
from testbed.training.tables import EmbeddingTables
from tests.for_each import for_each
from tests.training.jobs import JOBS, trainer_for

RECORDS = torch.tensor([[5, 1], [1, 0]])


def tables_of(model: nn.Module, inputs: Tensor = RECORDS) -> EmbeddingTables:
    return EmbeddingTables(segments(model), inputs)


class Use(nn.Module):
    """One parameter, used as ``how`` says."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.weight = how, nn.Parameter(torch.ones(6, 3))

    def forward(self, inputs: Tensor) -> Tensor:
        if self.how == "of one size":
            return functional.embedding(inputs, self.weight) / self.weight.shape[1]
        if self.how == "bag":
            return functional.embedding_bag(inputs, self.weight)
        if self.how == "tied":
            return functional.linear(functional.embedding(inputs, self.weight), self.weight)
        if self.how == "decayed":
            return functional.embedding(inputs, self.weight) + self.weight.pow(2).sum()
        return self.weight[inputs]


@for_each(
    ("how", "is_table"), [("of one size", True), ("bag", True), ("tied", False), ("decayed", False), ("indexed", False)]
)
def test_a_table_is_used_for_look_ups_alone(how: str, is_table: bool) -> None:
    tables = tables_of(Use(how))
    assert tables.widths == ({0: 3} if is_table else {})
    if is_table:
        assert tables.rows(RECORDS)[0].tolist() == [0, 1, 5]


@for_each("job", JOBS)
def test_models_have_the_tables_that_they_declare(job: str, tmp_path: Path) -> None:
    trainer = trainer_for(job, tmp_path)
    found = {"recommender": {0: 4}, "transformer": {0: 16, 1: 16}}
    assert trainer.widths == found.get(job, {})
    before, epoch = trainer.values(), trainer.epoch
    for step in (0, 1, 40):
        rows = trainer.rows(step)
        assert trainer.epoch == epoch, "to look ahead is no training"
        gradients = trainer.gradient(step).gradients
        epoch = trainer.epoch
        for key, width in trainer.widths.items():
            changed = gradients[key].view(-1, width).any(1).nonzero().flatten()
            assert set(changed.tolist()) <= set(rows[key].tolist())
            assert rows[key].dtype == torch.int64 and bool((rows[key].diff() > 0).all())
    assert all(map(torch.equal, before, trainer.values()))
