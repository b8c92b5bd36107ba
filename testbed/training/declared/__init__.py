"""Large models as tables of layers, for predictions at a scale where real training does not fit.

Sizes follow the architectures' papers and are checked against published totals (tests/training/test_declared.py).
Work is that of convolutions and matrix products, 2 operations per multiply-add; backward is twice forward, except
for a first segment, whose input needs no gradient.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from testbed.errors import ScenarioError
from testbed.training.declared.table import (
    BERT_TOKENS,
    GPT2_TOKENS,
    Layers,
    alexnet,
    bert,
    convnext,
    gpt2,
    resnet,
    vgg,
    xlm_roberta,
)
from testbed.training.shapes import ModelShape, SegmentShape

IMAGE_MODELS: dict[str, Callable[[], Layers]] = {
    "alexnet": alexnet,
    "resnet18": lambda: resnet((2, 2, 2, 2), bottleneck=False),
    "resnet50": lambda: resnet((3, 4, 6, 3), bottleneck=True),
    "resnet101": lambda: resnet((3, 4, 23, 3), bottleneck=True),
    "resnet152": lambda: resnet((3, 8, 36, 3), bottleneck=True),
    "convnext-large": lambda: convnext((3, 3, 27, 3), 192),
    "vgg11": lambda: vgg((1, 1, 2, 2, 2)),
    "vgg16": lambda: vgg((2, 2, 3, 3, 3)),
    "vgg19": lambda: vgg((2, 2, 4, 4, 4)),
}

# The argument is the number of tokens of a sample.
LANGUAGE_MODELS: dict[str, Callable[[int], Layers]] = {
    "bert-base": lambda tokens: bert(12, 768, tokens),
    "bert-large": lambda tokens: bert(24, 1024, tokens),
    "xlm-roberta-large": lambda tokens: xlm_roberta(24, 1024, tokens),
    "gpt2-small": lambda tokens: gpt2(12, 768, tokens),
    "gpt2-medium": lambda tokens: gpt2(24, 1024, tokens),
    "gpt2-large": lambda tokens: gpt2(36, 1280, tokens),
    "gpt2-xl": lambda tokens: gpt2(48, 1600, tokens),
}

DECLARED: tuple[str, ...] = (*IMAGE_MODELS, *LANGUAGE_MODELS)


COLUMNS = ("segment", "key", "elements", "forward_flops")


def declared_shape(name: str, sequence: int = 0, file: str = "", buckets: int = 0) -> ModelShape:
    """Return the shape of a declared model; see ``testbed.training.options.models.Declared``.

    Raise ``ScenarioError`` for an invalid file or length.
    """
    shape = _by_tensors(name, sequence, file)
    return packed(shape, buckets) if buckets else shape


def packed(shape: ModelShape, buckets: int) -> ModelShape:
    """Return the model with all tensors packed into ``buckets`` keys whose sizes differ by at most one element.

    It is one segment: all gradients of a step are complete at the same time.
    """
    elements = sum(shape.sizes)
    if buckets > elements:
        raise ScenarioError(f"training.model.buckets: {buckets}, but {shape.name} has {elements} parameters")
    bounds = [elements * i // buckets for i in range(buckets + 1)]
    forward, backward = shape.forward_flops, sum(segment.backward_flops for segment in shape.segments)
    sizes = tuple(stop - start for start, stop in pairwise(bounds))
    return ModelShape(shape.name, (SegmentShape("model", sizes, forward, backward),))


def _by_tensors(name: str, sequence: int, file: str) -> ModelShape:
    if file:
        return read_layers(Path(file))
    if name in IMAGE_MODELS:
        if sequence:
            raise ScenarioError(f"training.model.sequence has no effect on {name}; remove it")
        return IMAGE_MODELS[name]().shape(name)
    longest = GPT2_TOKENS if name.startswith("gpt2") else BERT_TOKENS
    if sequence > longest:
        raise ScenarioError(f"training.model.sequence: {sequence} is more than {name}'s {longest} tokens")
    return LANGUAGE_MODELS[name](sequence or longest).shape(name)


def read_layers(path: Path) -> ModelShape:
    """Read a table with a header and one key per line; rows of a segment are consecutive, in forward order.

    ``forward_flops`` is the key's share of its segment's work for one sample, and may be empty.
    """
    layers = Layers()
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = csv.DictReader(file)
            if tuple(rows.fieldnames or ()) != COLUMNS:
                raise ScenarioError(f"{path}: the first line must be {','.join(COLUMNS)}")
            _read_rows(layers, rows, path)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ScenarioError(f"{path}: cannot be read as a table of layers: {error}") from error
    return layers.shape(path.stem)


def _read_rows(layers: Layers, rows: csv.DictReader[str], path: Path) -> None:
    finished: set[str] = set()
    current = None
    for row in rows:
        where = f"{path}:{rows.line_num}"
        try:
            segment, elements = row["segment"], int(row["elements"])
            flops = float(row["forward_flops"] or 0)
        except (TypeError, ValueError) as error:
            raise ScenarioError(f"{where}: expected a name, a whole number and a number or nothing: {error}") from error
        if elements < 1 or not 0 <= flops < 1e30 or not segment:
            raise ScenarioError(f"{where}: elements must be at least 1, forward_flops not negative, segment not empty")
        if segment in finished:
            raise ScenarioError(f"{where}: segment '{segment}' continues after another one; put its rows together")
        if current is not None and segment != current:
            finished.add(current)
        current = segment
        layers.add(segment, [elements], flops / 2)
    if current is None:
        raise ScenarioError(f"{path}: has no layers")
