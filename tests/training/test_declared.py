"""Declared models against totals that others published."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.errors import ScenarioError
from testbed.training.declared import DECLARED, IMAGE_MODELS, declared_shape, read_layers
from testbed.training.models import shape_of_model
from tests.for_each import for_each

# Parameters: torchvision's and transformers' model pages (BertModel, XLMRobertaModel, GPT2Model), exact.
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
}
# "GFLOPS" of torchvision's weights, which are multiply-adds of one 224×224 image.
GIGA_MULTIPLY_ADDS = {
    "alexnet": 0.71, "resnet18": 1.81, "resnet50": 4.09, "resnet101": 7.80, "resnet152": 11.51, "vgg11": 7.61,
    "vgg16": 15.47, "vgg19": 19.63, "convnext-large": 34.36,
}  # fmt: skip


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
        ("a", (10, 2), 100), ("b", (5,), 7000),
    ]  # fmt: skip


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
