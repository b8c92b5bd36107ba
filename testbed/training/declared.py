"""Large models as tables of layers, for predictions where the hardware is too small for real training.

Sizes are checked against published totals (tests/training/test_models.py). Work counts convolutions and matrix
products, with 2 operations per multiply-add. Backward takes twice as many operations as forward, except in the first
segment, whose input needs no gradient.

Images are 224×224, of 1 000 classes, as in torchvision: Krizhevsky, One weird trick, 2014 · Simonyan and Zisserman,
2015, table 1 · He et al., 2016, table 1 (stride in the 3×3 convolution, as in torchvision) · Liu et al., 2022
(ConvNeXt), table 9. Running means and variances are not parameters and are omitted.

Language models are defined by depth and width: BERT (Devlin et al., 2019), XLM-R (Conneau et al., 2020), GPT-2 (Radford
et al., 2019), Llama 2 (Touvron et al., 2023). The forward work of a sample of T tokens is 2·T operations per matrix
element, and 4·T²·width per layer for the two products of the attention.

``held`` counts the elements that the backward pass needs from the forward pass: the inputs and outputs of matrix
products and convolutions, and the inputs of normalisations. It leaves out the products of the attention, which are
recomputed (FlashAttention). For a GPT-2 layer, this gives 18·T·width elements; Korthikanti et al., 2022, count 17.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from testbed.errors import ScenarioError
from testbed.training.shapes import ModelShape, SegmentShape

CLASSES = 1000


@dataclass(slots=True)
class Layers:
    """Sizes of keys and work, segment by segment, in forward order."""

    _sizes: dict[str, list[int]] = field(default_factory=dict)
    _flops: dict[str, float] = field(default_factory=dict)
    _outputs: dict[str, int] = field(default_factory=dict)
    _held: dict[str, int] = field(default_factory=dict)
    tied: bool = False  # the last segment computes with a matrix of the first one

    def add(self, segment: str, sizes: list[int], multiply_adds: float = 0) -> None:
        """Append keys and work (multiply-adds of one sample's forward pass) to a segment."""
        self._sizes.setdefault(segment, []).extend(sizes)
        self._flops[segment] = self._flops.get(segment, 0) + 2 * multiply_adds

    def pass_on(self, segment: str, outputs: int, held: int) -> None:
        """Note, for one sample, how many elements the segment's last operation returns, and how many it must hold."""
        self._outputs[segment] = outputs
        self._held[segment] = self._held.get(segment, 0) + held

    def linear(self, segment: str, inputs: int, outputs: int, tokens: int = 1) -> None:
        """Add a matrix with a bias, applied to every token."""
        self.add(segment, [inputs * outputs, outputs], inputs * outputs * tokens)
        self.pass_on(segment, outputs * tokens, (inputs + outputs) * tokens)

    def matrices(self, segment: str, inputs: int, outputs: tuple[int, ...], tokens: int) -> None:
        """Add matrices without biases that share the input of every token. ``outputs``: the output width of each."""
        for each in outputs:
            self.add(segment, [inputs * each], inputs * each * tokens)
        self.pass_on(segment, outputs[-1] * tokens, (inputs + sum(outputs)) * tokens)

    def norm(self, segment: str, width: int, places: int = 1) -> None:
        """Add a normalisation (scale and shift) without counting its work. ``places``: tokens or pixels of a sample."""
        self.add(segment, [width, width])
        self.pass_on(segment, width * places, width * places)

    def scale(self, segment: str, width: int, places: int) -> None:
        """Add a normalisation with a scale, but no shift."""
        self.add(segment, [width])
        self.pass_on(segment, width * places, width * places)

    def shape(self, name: str) -> ModelShape:
        """Return the model's shape. Backward work is twice the forward work, except in the first segment."""
        segments: list[SegmentShape] = []
        for segment, sizes in self._sizes.items():
            forward = self._flops[segment]
            backward = 2 * forward if segments else forward  # the gradient with respect to the samples is not needed
            outputs = self._outputs.get(segment, 0)
            held = self._held.get(segment, 0)
            segments.append(SegmentShape(segment, tuple(sizes), forward, backward, outputs=outputs, held=held))
        return ModelShape(name, tuple(segments), self.tied)


def alexnet() -> Layers:
    """AlexNet without groups: 61.1 M parameters, 0.71 G multiply-adds."""
    layers = Layers()
    convolutions = ((3, 64, 11, 55), (64, 192, 5, 27), (192, 384, 3, 13), (384, 256, 3, 13), (256, 256, 3, 13))
    for number, (inputs, outputs, kernel, side) in enumerate(convolutions, 1):
        _convolution(layers, f"conv{number}", (inputs, outputs, kernel, side), bias=True)
    for number, (inputs, outputs) in enumerate(((256 * 6 * 6, 4096), (4096, 4096), (4096, CLASSES)), 6):
        layers.linear(f"fc{number}", inputs, outputs)
    return layers


def vgg(convolutions_per_stage: tuple[int, ...]) -> Layers:
    """VGG without batch normalisation: (2, 2, 3, 3, 3) is VGG-16."""
    layers = Layers()
    inputs = 3
    for stage, (count, outputs) in enumerate(zip(convolutions_per_stage, (64, 128, 256, 512, 512), strict=True)):
        for number in range(count):
            side = 224 >> stage
            _convolution(layers, f"conv{stage + 1}_{number + 1}", (inputs, outputs, 3, side), bias=True)
            inputs = outputs
    for number, (width, outputs) in enumerate(((512 * 7 * 7, 4096), (4096, 4096), (4096, CLASSES)), 6):
        layers.linear(f"fc{number}", width, outputs)
    return layers


def resnet(blocks_per_stage: tuple[int, ...], *, bottleneck: bool) -> Layers:
    """ResNet: (3, 4, 6, 3) with bottlenecks is ResNet-50. A segment is a residual block."""
    layers = Layers()
    _convolution(layers, "conv1", (3, 64, 7, 112))
    inputs = 64
    for stage, count in enumerate(blocks_per_stage):
        for number in range(count):
            inputs = _block(layers, f"layer{stage + 1}.{number}", inputs, stage, bottleneck)
    layers.linear("fc", inputs, CLASSES)
    return layers


def convnext(blocks_per_stage: tuple[int, ...], width: int) -> Layers:
    """ConvNeXt: (3, 3, 27, 3) from 192 channels on is ConvNeXt-L. Segments: blocks, and downsampling between stages."""
    layers = Layers()
    _convolution(layers, "stem", (3, width, 4, 56), bias=True)
    layers.norm("stem", width)
    for stage, count in enumerate(blocks_per_stage):
        channels = width << stage
        side = 56 >> stage
        if stage:
            layers.norm(f"down{stage}", channels // 2, 4 * side * side)
            _convolution(layers, f"down{stage}", (channels // 2, channels, 2, side), bias=True)
        for number in range(count):
            _convnext_block(layers, f"stage{stage}.{number}", channels, side)
    layers.norm("fc", width << 3)
    layers.linear("fc", width << 3, CLASSES)
    return layers


def _convnext_block(layers: Layers, name: str, channels: int, side: int) -> None:
    """Add a depthwise 7×7 convolution, a perceptron over the channels, and a scale for each channel."""
    layers.add(name, [49 * channels, channels], 49 * channels * side * side)
    layers.pass_on(name, channels * side * side, 2 * channels * side * side)
    layers.norm(name, channels, side * side)
    layers.linear(name, channels, 4 * channels, side * side)
    layers.linear(name, 4 * channels, channels, side * side)
    layers.add(name, [channels])


def _block(layers: Layers, name: str, inputs: int, stage: int, bottleneck: bool) -> int:
    width = 64 << stage
    side = 56 >> stage
    outputs = 4 * width if bottleneck else width
    enters = name.endswith(".0")
    entry_side = side * 2 if enters and stage > 0 else side  # before the stride of 2
    if bottleneck:
        _convolution(layers, name, (inputs, width, 1, entry_side))
        _convolution(layers, name, (width, width, 3, side))
        _convolution(layers, name, (width, outputs, 1, side))
    else:
        _convolution(layers, name, (inputs, width, 3, side))
        _convolution(layers, name, (width, width, 3, side))
    if enters and inputs != outputs:
        _convolution(layers, name, (inputs, outputs, 1, side))
    return outputs


def _convolution(layers: Layers, segment: str, form: tuple[int, int, int, int], *, bias: bool = False) -> None:
    """Add a convolution, with a bias or followed by a normalisation.

    form  input channels, output channels, side of the kernel, side of the output. ``held`` assumes that the input has
          the side of the output, even if a stride makes the output smaller
    """
    inputs, outputs, kernel, side = form
    weights = inputs * outputs * kernel * kernel
    layers.add(segment, [weights], weights * side * side)
    layers.pass_on(segment, outputs * side * side, (inputs + outputs) * side * side)
    if bias:
        layers.add(segment, [outputs])
    else:
        layers.norm(segment, outputs, side * side)


BERT_VOCABULARY = 30_522
BERT_TOKENS = 512
XLM_VOCABULARY = 250_002
XLM_POSITIONS = 514  # two of them are unused
GPT2_VOCABULARY = 50_257
GPT2_TOKENS = 1_024
LLAMA2_VOCABULARY = 32_000
LLAMA2_TOKENS = 4_096


def bert(depth: int, width: int, tokens: int) -> Layers:
    """BERT's encoder and pooler, without a head: depth 12 and width 768 is BERT-base."""
    return _encoder([BERT_VOCABULARY * width, BERT_TOKENS * width, 2 * width], depth, width, tokens)


def xlm_roberta(depth: int, width: int, tokens: int) -> Layers:
    """BERT with a vocabulary of a hundred languages: depth 24 and width 1024 is XLM-R large."""
    return _encoder([XLM_VOCABULARY * width, XLM_POSITIONS * width, width], depth, width, tokens)


def _encoder(embeddings: list[int], depth: int, width: int, tokens: int) -> Layers:
    layers = Layers()
    layers.add("embeddings", embeddings)
    layers.norm("embeddings", width, tokens)
    for number in range(depth):
        name = f"layer{number}"
        for _ in ("query", "key", "value"):
            layers.add(name, [width * width, width], width * width * tokens)
        layers.pass_on(name, width * tokens, (1 + 3) * width * tokens)  # the three have one input
        layers.add(name, [], 2 * tokens * tokens * width)
        layers.linear(name, width, width, tokens)
        layers.norm(name, width, tokens)
        layers.linear(name, width, 4 * width, tokens)
        layers.linear(name, 4 * width, width, tokens)
        layers.norm(name, width, tokens)
    layers.linear("pooler", width, width)
    return layers


def gpt2(depth: int, width: int, tokens: int) -> Layers:
    """GPT-2's decoder. Its output matrix is the token embedding again, so it adds work, but no key."""
    layers = Layers()
    layers.tied = True
    layers.add("embeddings", [GPT2_VOCABULARY * width, GPT2_TOKENS * width])
    layers.pass_on("embeddings", width * tokens, 0)
    for number in range(depth):
        name = f"h{number}"
        layers.norm(name, width, tokens)
        layers.linear(name, width, 3 * width, tokens)
        layers.add(name, [], 2 * tokens * tokens * width)
        layers.linear(name, width, width, tokens)
        layers.norm(name, width, tokens)
        layers.linear(name, width, 4 * width, tokens)
        layers.linear(name, 4 * width, width, tokens)
    layers.norm("head", width, tokens)
    layers.add("head", [], GPT2_VOCABULARY * width * tokens)
    layers.pass_on("head", GPT2_VOCABULARY * tokens, (width + GPT2_VOCABULARY) * tokens)
    return layers


def llama2(depth: int, width: int, hidden: int, key_values: int, tokens: int) -> Layers:
    """Llama 2: 80 layers of width 8192, with keys and values of width 1024 (grouped queries), are the 70 B model."""
    layers = Layers()
    layers.add("embeddings", [LLAMA2_VOCABULARY * width])
    layers.pass_on("embeddings", width * tokens, 0)
    for number in range(depth):
        name = f"layer{number}"
        layers.scale(name, width, tokens)
        layers.matrices(name, width, (width, key_values, key_values), tokens)
        layers.add(name, [], 2 * tokens * tokens * width)
        layers.matrices(name, width, (width,), tokens)
        layers.scale(name, width, tokens)
        layers.matrices(name, width, (hidden, hidden), tokens)
        layers.matrices(name, hidden, (width,), tokens)
    layers.scale("head", width, tokens)
    layers.matrices("head", width, (LLAMA2_VOCABULARY,), tokens)
    return layers


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
    "llama2-7b": lambda tokens: llama2(32, 4096, 11_008, 4096, tokens),
    "llama2-13b": lambda tokens: llama2(40, 5120, 13_824, 5120, tokens),
    "llama2-70b": lambda tokens: llama2(80, 8192, 28_672, 1024, tokens),
}

LONGEST = {"gpt2": GPT2_TOKENS, "llama2": LLAMA2_TOKENS}
"""The most tokens of a sample, by the first part of the model's name; other models have ``BERT_TOKENS``."""

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

    The model becomes one segment, so all gradients of a step are complete at the same time.
    """
    elements = sum(shape.sizes)
    if buckets > elements:
        raise ScenarioError(f"training.model.buckets: {buckets}, but {shape.name} has {elements} parameters")
    bounds = [elements * i // buckets for i in range(buckets + 1)]
    forward = shape.forward_flops
    backward = sum(segment.backward_flops for segment in shape.segments)
    sizes = tuple(stop - start for start, stop in pairwise(bounds))
    return ModelShape(shape.name, (SegmentShape("model", sizes, forward, backward),))


def _by_tensors(name: str, sequence: int, file: str) -> ModelShape:
    if file:
        return read_layers(Path(file).expanduser())
    if name in IMAGE_MODELS:
        if sequence:
            raise ScenarioError(f"training.model.sequence has no effect on {name}; remove it")
        return IMAGE_MODELS[name]().shape(name)
    longest = next((tokens for family, tokens in LONGEST.items() if name.startswith(family)), BERT_TOKENS)
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
            segment = row["segment"]
            elements = int(row["elements"])
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
