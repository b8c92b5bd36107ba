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


def test_rows_of_a_batch_are_those_with_a_gradient() -> None:
    model = nn.Sequential(nn.Embedding(9, 2), nn.Flatten(), nn.Linear(4, 3))
    tables = tables_of(model)
    assert tables.widths == {0: 2}
    model(RECORDS).pow(2).sum().backward()
    gradient = model[0].weight.grad
    assert tables.rows(RECORDS)[0].tolist() == gradient.any(1).nonzero().flatten().tolist() == [0, 1, 5]


def test_hooks_of_a_segment_have_their_say() -> None:
    """They may change which rows a step looks up."""
    table = nn.Embedding(10, 4)
    table.register_forward_pre_hook(lambda _, inputs: (inputs[0].clamp(max=3),))
    tables = tables_of(nn.Sequential(table, nn.Flatten(), nn.Linear(8, 2)), torch.tensor([[1, 2]]))
    assert tables.rows(torch.tensor([[7, 2], [9, 1]]))[0].tolist() == [1, 2, 3]


def test_look_ups_after_layers_are_found_as_well() -> None:
    class Late(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(4, 2)

        def forward(self, inputs: Tensor) -> Tensor:
            return self.table((inputs > 0).long().sum(1))

    model = nn.Sequential(nn.Linear(2, 3), Late(), nn.Linear(2, 2))
    with torch.no_grad():
        model[0].weight.zero_()
        model[0].bias.copy_(torch.tensor([1.0, 1.0, -1.0]))
    tables = tables_of(model, torch.ones(5, 2))
    assert tables.widths == {2: 2}
    assert tables.rows(torch.ones(5, 2))[2].tolist() == [2]


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
