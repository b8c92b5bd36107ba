"""Models: published sizes, keys, blocks and tables; declared models against totals that others published."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from testbed.errors import ScenarioError
from testbed.training import models
from testbed.training.batches import Batches
from testbed.training.datasets import Dataset
from testbed.training.declared import DECLARED, IMAGE_MODELS, declared_shape, read_layers
from testbed.training.models import build_model, initialise, measure, segments, shape_of_model
from testbed.training.tables import EmbeddingTables
from testbed.training.trainer import TorchStep, Trainer
from tests.for_each import for_each
from tests.training.jobs import JOBS, trainer_for

GREY, COLOUR, TEXT = (1, 28, 28), (3, 32, 32), (64,)
DEMO_KEYS = (400, 16, 12800, 32, 131072, 256, 32768, 128, 1280, 10)


def sizes(model: nn.Module) -> tuple[int, ...]:
    return tuple(parameter.numel() for parameter in model.parameters())


def test_demo_cnn_has_the_keys_of_geomx() -> None:
    model = build_model("cnn", {}, GREY, 10, seed=1)
    assert sizes(model) == DEMO_KEYS
    assert sum(DEMO_KEYS) == 178_762
    assert [tuple(segment.keys) for segment in segments(model)] == [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]


@for_each(
    ("kind", "options", "shape", "parameters"),
    [
        ("cnn", {}, (1, 8, 8), 80_458),
        ("lenet", {}, GREY, 61_706),  # LeNet-5
        ("lenet", {}, COLOUR, 62_006),
        ("mlp", {"hidden": 64}, GREY, 50_890),
        ("resnet", {"blocks": 3}, COLOUR, 269_722),  # ResNet-20, He et al.: 0.27 M
    ],
)
def test_published_sizes(kind: str, options: dict[str, Any], shape: tuple[int, ...], parameters: int) -> None:
    assert sum(sizes(build_model(kind, options, shape, 10, seed=1))) == parameters
    assert sum(shape_of_model(kind, options, shape, 10).sizes) == parameters


def test_other_vectors_stay_as_their_layer_makes_them() -> None:
    own = nn.Linear(4, 4)
    own.gain = nn.Parameter(torch.full((4,), 2.0))
    model = nn.Sequential(own, nn.RMSNorm(4), nn.InstanceNorm1d(4, affine=True), nn.PReLU())
    initialise(model)
    vectors = [(name, set(each.tolist())) for name, each in model.named_parameters() if each.dim() == 1]
    norms = [("1.weight", {1}), ("2.weight", {1}), ("2.bias", {0})]
    assert vectors == [("0.bias", {0}), ("0.gain", {2}), *norms, ("3.weight", {0.25})]


def test_transformer_does_not_look_ahead() -> None:
    model = build_model("transformer", {}, TEXT, 10, seed=1)
    characters = torch.randint(0, 10, (1, 64), generator=torch.Generator().manual_seed(0))
    changed = characters.clone()
    changed[0, 40] = (changed[0, 40] + 1) % 10
    before, after = model(characters), model(changed)
    assert torch.equal(before[0, :40], after[0, :40])
    assert not torch.equal(before[0, 40:], after[0, 40:])


@for_each(
    ("kind", "shape", "message"),
    [
        ("cnn", TEXT, "'cnn' is for images"),
        ("transformer", GREY, "'transformer' is for text"),
        ("recommender", GREY, "'recommender' is for records"),
        ("declared", GREY, "compute: modelled"),
        ("lenet", (1, 3, 3), "too small"),
    ],
)
def test_models_refuse_data_they_are_not_for(kind: str, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        build_model(kind, {}, shape, 10, seed=1)


def test_segments_share_no_parameter() -> None:
    layer = nn.Linear(2, 2)
    with pytest.raises(
        ScenarioError, match=r"the blocks '0' and '2' share a parameter \('weight' of the latter\); write"
    ):
        segments(nn.Sequential(layer, nn.ReLU(), layer))


def test_a_layer_that_works_in_place_belongs_to_the_segment_before() -> None:
    blocks = nn.Linear(4, 3), nn.Sequential(nn.ReLU(inplace=True), nn.Linear(3, 3)), nn.ReLU(inplace=True), nn.Tanh()
    model = nn.Sequential(nn.Flatten(), *blocks, nn.Linear(3, 2))
    parts = segments(model)
    assert [(part.name, tuple(part.keys)) for part in parts] == [("1", (0, 1, 2, 3)), ("4", ()), ("5", (4, 5))]
    assert measure("mine", model, torch.ones(1, 2, 2)).sizes == (12, 3, 9, 3, 6, 2)


class Changed(nn.Linear):
    """A block that works in place out of sight."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(inputs.relu_())


class Unused(nn.Linear):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs @ self.weight.T


class Looking(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(4, 4, sparse=True)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs + self.table(torch.zeros(len(inputs), dtype=torch.int64))


class Deaf(nn.Linear):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(torch.ones_like(inputs))


@for_each(
    ("block", "by_segments", "whole"),
    [
        (Changed(4, 4), "block '1' changes its input in place, .* write inplace=False", ""),
        (Unused(4, 4), "the forward pass does not use the parameter 'bias'", "does not use the parameter '1.bias'"),
        (Looking(), "the gradient of 'table.weight' is sparse; write sparse=False", "the gradient of '1.table.weight'"),
        (Deaf(4, 4), "block '1' does not use the output of the one before", "does not use the parameter '0.weight'"),
    ],
)
def test_blocks_that_break_the_contract_are_named(block: nn.Module, by_segments: str, whole: str) -> None:
    model, inputs, labels = nn.Sequential(nn.Linear(4, 4), block), torch.ones(2, 4), torch.zeros(2, dtype=torch.int64)

    def step() -> None:
        parts = TorchStep(segments(model), inputs, labels)
        for index in range(2):
            parts.forward_segment(index)
        for index in (1, 0):
            parts.backward_segment(index)

    with pytest.raises(ScenarioError, match=by_segments):
        step()
    trainer = Trainer(model, Dataset(inputs, labels, inputs, labels, 4), Batches(torch.arange(2), 2, 0, 0))
    with pytest.raises(ScenarioError, match=whole) if whole else nullcontext():
        trainer.gradient(0)


@for_each(
    ("model", "problem"),
    [
        (nn.Linear(4, 4).requires_grad_(False), "parameters without gradients only; there is nothing to train"),
        (nn.Flatten(), "has no parameters; there is nothing to train"),
        (nn.Sequential(nn.Flatten(), nn.LazyLinear(3)), r"'1\.weight' is not initialised yet.*torch\.zeros\(1, 1,"),
        (nn.Linear(4, 4).double(), r"'weight' is torch\.float64.*model\.float\(\)"),
        (nn.Linear(4, 4, device="meta"), "weight' has no data"),
        (nn.BatchNorm1d(4), "running_mean.* write nn.GroupNorm"),
    ],
)
def test_models_that_cannot_be_trained_are_refused(
    model: nn.Module, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(models._BUILDERS, "mlp", lambda *arguments: model)
    with pytest.raises(ScenarioError, match=problem):
        build_model("mlp", {}, GREY, 10, seed=1)


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
        if self.how == "halved":
            top, bottom = self.weight.chunk(2)
            return functional.embedding(inputs, self.weight) + (top * bottom).sum()
        if self.how == "decayed":
            return functional.embedding(inputs, self.weight) + self.weight.pow(2).sum()
        return self.weight[inputs]


@for_each(
    ("how", "is_table"),
    [
        ("of one size", True),
        ("bag", True),
        ("tied", False),
        ("halved", False),
        ("decayed", False),
        ("indexed", False),
    ],
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


# Parameters: torchvision's and transformers' model pages (BertModel, XLMRobertaModel, GPT2Model,
# LlamaForCausalLM), exact.
PARAMETERS = {
    "alexnet": 61_100_840,
    "resnet18": 11_689_512,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "convnext-large": 197_767_336,
    "vgg11": 132_863_336,
    "vgg16": 138_357_544,
    "vgg19": 143_667_240,
    "bert-base": 109_482_240,
    "bert-large": 335_141_888,
    "xlm-roberta-large": 559_890_432,
    "gpt2-small": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "llama2-7b": 6_738_415_616,
    "llama2-13b": 13_015_864_320,
    "llama2-70b": 68_976_648_192,
}
# "GFLOPS" of torchvision's weights, which are multiply-adds of one 224×224 image.
GIGA_MULTIPLY_ADDS = {
    "alexnet": 0.71,
    "resnet18": 1.81,
    "resnet50": 4.09,
    "resnet101": 7.80,
    "resnet152": 11.51,
    "vgg11": 7.61,
    "vgg16": 15.47,
    "vgg19": 19.63,
    "convnext-large": 34.36,
}


@for_each("name", DECLARED)
def test_parameters(name: str) -> None:
    assert sum(declared_shape(name=name).sizes) == PARAMETERS[name]


@for_each("name", IMAGE_MODELS)
def test_work(name: str) -> None:
    assert declared_shape(name=name).forward_flops / 2e9 == pytest.approx(GIGA_MULTIPLY_ADDS[name], abs=0.006)


def test_work_of_a_language_model_is_about_two_per_parameter_and_token() -> None:
    shape = declared_shape(name="gpt2-small", sequence=128)
    attention = 12 * 4 * 128**2 * 768
    matrices = 12 * 12 * 768**2 + 50_257 * 768
    assert shape.forward_flops == 2 * 128 * matrices + attention


def test_what_backward_passes_hold_are_inputs_and_outputs_each_counted_once() -> None:
    """Queries, keys and values of a layer have one input; logits and convolutions by channel count like all others."""
    for name in ("bert-base", "gpt2-small"):
        _, layer, *_, last = declared_shape(name=name, sequence=128).segments
        assert layer.held == 18 * 128 * 768, name
    assert last.held == 128 * (768 + 768 + 50_257)
    _, block, *_ = declared_shape(name="convnext-large").segments
    assert block.held == (2 + 1 + 5 + 5) * 56 * 56 * 192


def test_backward_is_twice_forward_but_for_the_first_segment() -> None:
    first, second, *_ = declared_shape(name="vgg16").segments
    assert (first.backward_flops / first.forward_flops, second.backward_flops / second.forward_flops) == (1, 2)


def test_a_length_is_refused_where_it_has_no_effect_or_no_room() -> None:
    with pytest.raises(ScenarioError, match="no effect on resnet50"):
        declared_shape(name="resnet50", sequence=128)
    with pytest.raises(ScenarioError, match="513 is more than bert-base's 512"):
        declared_shape(name="bert-base", sequence=513)


def test_own_table(tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    file.write_text("segment,key,elements,forward_flops\na,w,10,100\na,b,2,\nb,w,5,7e3\n")
    shape = shape_of_model("declared", {"file": str(file)}, (), 0)
    assert shape.name == "mine"
    assert [(segment.name, segment.sizes, segment.forward_flops) for segment in shape.segments] == [
        ("a", (10, 2), 100),
        ("b", (5,), 7000),
    ]


HEADER = "segment,key,elements,forward_flops\n"


@for_each(
    ("content", "message"),
    [
        ("", "the first line must be"),
        (HEADER, "has no layers"),
        (HEADER + "a,w,ten,1\n", r"mine\.csv:2"),
        (HEADER + "a,w,0,1\n", r"mine\.csv:2: elements must be at least 1"),
        (HEADER + "a,w\n", r"mine\.csv:2"),
        (HEADER + "a,w,1,nan\n", r"mine\.csv:2"),
        (HEADER + "a,w,1,\nb,w,1,\na,b,1,\n", r"mine\.csv:4: segment 'a' continues"),
        (HEADER + f"a,{'w' * 200_000},1,\n", r"mine\.csv: cannot be read as a table of layers: field larger"),
    ],
)
def test_malformed_tables(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "mine.csv"
    file.write_text(content)
    with pytest.raises(ScenarioError, match=message):
        read_layers(file)


def test_buckets_hold_the_whole_model_in_keys_of_like_size() -> None:
    plain, shape = declared_shape("resnet50"), declared_shape("resnet50", buckets=7)
    assert len(shape.sizes) == 7
    assert sum(shape.sizes) == sum(plain.sizes)
    assert max(shape.sizes) - min(shape.sizes) <= 1
    assert shape.forward_flops == plain.forward_flops
    assert len(declared_shape("resnet50", buckets=1).sizes) == 1
