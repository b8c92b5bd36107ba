"""Options of the models."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import pairwise
from math import prod
from typing import Any, ClassVar

from testbed.axes import Axis, option
from testbed.training.declared import DECLARED, declared_shape
from testbed.training.options.declarations import (
    NOTHING,
    PROGRAM,
    RECORDS,
    SCRIPT,
    TEXT,
    TRACE,
    UNKNOWN_MODEL_BYTES,
    ModelDeclarations,
)

SMALLEST_SIDE = 4  # images with smaller sides vanish in two convolutions and poolings


def _too_small(shape: tuple[int, ...]) -> str:
    side = min(shape[1:])
    return f"images of side {side} are too small for two convolutions; use mlp" if side < SMALLEST_SIDE else ""


def _dense(inputs: int, outputs: int) -> int:
    return (inputs + 1) * outputs


def _attention_block(width: int) -> int:
    """Return the number of parameters of a transformer block: two norms, attention, a hidden layer 4 times wider."""
    return 12 * width**2 + 13 * width


@dataclass(frozen=True, slots=True)
class Cnn(ModelDeclarations):
    """GeoMX's demo CNN: two convolutions, three dense layers; 178 762 parameters at 28×28, 80 458 at 8×8."""

    call_s: ClassVar[float] = 1.2e-3

    @classmethod
    def misfit(cls, options: Cnn, shape: tuple[int, ...]) -> str:
        return _too_small(shape)

    @classmethod
    def size_bound_bytes(cls, options: Cnn) -> int:
        return 1 << 20

    @classmethod
    def parameters_bound(cls, options: Cnn, shape: tuple[int, ...], classes: int) -> int:
        return sum(parameters for parameters, _ in cls._layers(shape, classes))

    @classmethod
    def multiplications(cls, options: Cnn, shape: tuple[int, ...], classes: int) -> int:
        return sum(parameters * pixels for parameters, pixels in cls._layers(shape, classes))

    @staticmethod
    def _layers(shape: tuple[int, ...], classes: int) -> list[tuple[int, int]]:
        """Return, for each layer, the number of its parameters and of the pixels to which it applies them."""
        channels, *sides = shape
        cut = 4 if min(sides) >= 28 else 0  # a convolution shortens the sides by 4; smaller images are padded
        first = [side - cut for side in sides]
        second = [side // 2 - cut for side in first]
        features = 32 * prod(side // 2 for side in second)
        convolutions = [(_dense(25 * channels, 16), prod(first)), (_dense(25 * 16, 32), prod(second))]
        return [*convolutions, (_dense(features, 256), 1), (_dense(256, 128), 1), (_dense(128, classes), 1)]


@dataclass(frozen=True, slots=True)
class LeNet(ModelDeclarations):
    """LeNet-5 (LeCun et al., 1998) with ReLU and max pooling; 61 706 parameters at 28×28 grey."""

    call_s: ClassVar[float] = 1.4e-3

    @classmethod
    def misfit(cls, options: LeNet, shape: tuple[int, ...]) -> str:
        return _too_small(shape)

    @classmethod
    def parameters_bound(cls, options: LeNet, shape: tuple[int, ...], classes: int) -> int:
        channels, height, width = shape
        convolutions = _dense(25 * channels, 6) + _dense(25 * 6, 16)
        return convolutions + _dense(height * width, 120) + _dense(120, 84) + _dense(84, classes)


@dataclass(frozen=True, slots=True)
class Mlp(ModelDeclarations):
    """A multi-layer perceptron with ReLU; without hidden layers, logistic regression."""

    hidden: int = option(64, "width of each hidden layer", min=1, max=65_536)
    layers: int = option(1, "number of hidden layers", min=0, max=64)

    @classmethod
    def size_bound_bytes(cls, options: Mlp) -> int:
        """Return about the size of a model with 4096 inputs and 1024 outputs."""
        width = options.hidden
        layers = options.layers
        if not layers:
            return 4 * 1024 * (4096 + 1)
        return 4 * (width * width * (layers - 1) + width * (4096 + 1024 + layers))

    @classmethod
    def parameters_bound(cls, options: Mlp, shape: tuple[int, ...], classes: int) -> int:
        widths = [prod(shape), *[options.hidden] * options.layers, classes]
        return sum(_dense(inputs, outputs) for inputs, outputs in pairwise(widths))


@dataclass(frozen=True, slots=True)
class ResNet(ModelDeclarations):
    """A residual network for small images (He et al., 2016, §4.2) of depth 6·blocks + 2, with group normalisation."""

    call_s: ClassVar[float] = 4.5e-3
    blocks: int = option(1, "blocks per stage: 1 is ResNet-8, 3 is ResNet-20", min=1, max=18)
    widen: int = option(1, "factor on the widths 16, 32, 64", min=1, max=16)

    @classmethod
    def size_bound_bytes(cls, options: ResNet) -> int:
        """Return a bound for at most 64 channels and 10 000 outputs."""
        return max(UNKNOWN_MODEL_BYTES, 4 * cls.parameters_bound(options, (64,), 10_000))

    @classmethod
    def parameters_bound(cls, options: ResNet, shape: tuple[int, ...], classes: int) -> int:
        widths = [options.widen * width for width in (16, 32, 64)]
        blocks = sum(2 * options.blocks * (9 * width**2 + 2 * width) for width in widths)
        return (9 * shape[0] + 2) * widths[0] + blocks + _dense(widths[-1], classes)

    @classmethod
    def multiplications(cls, options: ResNet, shape: tuple[int, ...], classes: int) -> int:
        """Each stage halves the image's sides and doubles the width of the stage before."""
        widths = [options.widen * width for width in (16, 32, 64)]
        pixels = prod(shape[1:])
        stages = sum(2 * options.blocks * 9 * width**2 * pixels >> 2 * stage for stage, width in enumerate(widths))
        return 9 * shape[0] * widths[0] * pixels + stages + _dense(widths[-1], classes)


@dataclass(frozen=True, slots=True)
class ResNet50(ModelDeclarations):
    """ResNet-50, 101 or 152 (He et al., 2016, table 1) for large images, with group normalisation (Wu and He, 2018)."""

    depth: str = option("50", "number of layers", choices=("50", "101", "152"))

    @classmethod
    def size_bound_bytes(cls, options: ResNet50) -> int:
        """Return a bound for at most 2300 outputs."""
        return 4 * {"50": 29, "101": 48, "152": 64}[options.depth] * 10**6

    @classmethod
    def parameters_bound(cls, options: ResNet50, shape: tuple[int, ...], classes: int) -> int:
        stages = {"50": 24, "101": 43, "152": 59}[options.depth] * 10**6
        return 49 * 64 * shape[0] + stages + _dense(2048, classes)


@dataclass(frozen=True, slots=True)
class VisionTransformer(ModelDeclarations):
    """A vision transformer (Dosovitskiy et al., ICLR 2021) whose head reads the mean of all patches."""

    size: str = option("base", "tiny, small or base: width 192, 384 or 768", choices=("tiny", "small", "base"))
    patch: int = option(16, "side of a patch, of which the image's side is a multiple", min=1, max=64)

    @classmethod
    def misfit(cls, options: VisionTransformer, shape: tuple[int, ...]) -> str:
        _, height, across = shape
        if not height % options.patch and not across % options.patch:
            return ""
        problem = f"images of {height}×{across} are not a multiple of patches of side {options.patch}"
        return f"{problem}; write another 'patch'"

    @classmethod
    def size_bound_bytes(cls, options: VisionTransformer) -> int:
        return 4 * {"tiny": 9, "small": 28, "base": 95}[options.size] * 10**6

    @classmethod
    def parameters_bound(cls, options: VisionTransformer, shape: tuple[int, ...], classes: int) -> int:
        channels, height, across = shape
        width = {"tiny": 192, "small": 384, "base": 768}[options.size]
        patches = (height // options.patch) * (across // options.patch)
        embedding = _dense(channels * options.patch**2, width) + patches * width
        return embedding + 12 * _attention_block(width) + 2 * width + _dense(width, classes)


@dataclass(frozen=True, slots=True)
class Transformer(ModelDeclarations):
    """A small decoder-only transformer over characters, like GPT-2 (Radford et al., 2019)."""

    takes: ClassVar[str] = TEXT
    tables: ClassVar[bool] = True
    layers: int = option(2, "number of blocks", min=1, max=96)
    heads: int = option(4, "attention heads of a block", min=1, max=128)
    head_width: int = option(16, "width of one head; the model is heads times wider", min=1, max=512)

    @classmethod
    def size_bound_bytes(cls, options: Transformer) -> int:
        """Return a bound for at most GPT-2's vocabulary and a context of 4096."""
        width = options.heads * options.head_width
        return 4 * (options.layers * 13 * width**2 + (2 * 50_304 + 4096) * width)

    @classmethod
    def parameters_bound(cls, options: Transformer, shape: tuple[int, ...], classes: int) -> int:
        width = options.heads * options.head_width
        blocks = options.layers * _attention_block(width)
        return (classes + shape[0]) * width + blocks + 2 * width + _dense(width, classes)


@dataclass(frozen=True, slots=True)
class Recommender(ModelDeclarations):
    """An embedding table of categories, and a perceptron over the rows of a record (a small He et al., WWW 2017).

    Categories beyond the last row share the rows of others (feature hashing: Weinberger et al., ICML 2009).
    """

    takes: ClassVar[str] = RECORDS
    tables: ClassVar[bool] = True
    rows: int = option(20_000, "rows of the table", min=2, max=10**8)
    width: int = option(16, "numbers in a row", min=1, max=4096)
    hidden: int = option(32, "width of the hidden layer", min=1, max=65_536)

    @classmethod
    def size_bound_bytes(cls, options: Recommender) -> int:
        """Return a bound for at most 64 categories in a record and 1024 outputs."""
        return 4 * (options.rows * options.width + options.hidden * (65 * options.width + 1024 + 1) + 1024)

    @classmethod
    def parameters_bound(cls, options: Recommender, shape: tuple[int, ...], classes: int) -> int:
        inputs = (shape[0] + 1) * options.width
        return options.rows * options.width + _dense(inputs, options.hidden) + _dense(options.hidden, classes)


@dataclass(frozen=True, slots=True)
class Script(ModelDeclarations):
    """A user's own training code (``workload: {script: FILE}``), which brings its model and its data."""

    takes: ClassVar[str] = SCRIPT
    of_workload: ClassVar[bool] = True
    file: str = option("", "absolute path of the script", path="script")
    sha256: str = option("", "hash of the script, as it was when the scenario was read")


@dataclass(frozen=True, slots=True)
class UserProgram(ModelDeclarations):
    """The model of a user's program, if the program trains one (``workload: {command: …}``)."""

    takes: ClassVar[str] = PROGRAM
    of_workload: ClassVar[bool] = True

    @classmethod
    def size_bound_bytes(cls, options: UserProgram) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class Traced(ModelDeclarations):
    """The model of a job that was traced elsewhere (``workload: {trace: …}``)."""

    takes: ClassVar[str] = TRACE
    of_workload: ClassVar[bool] = True
    sent: int = option(0, "upper bound of the bytes that one rank sends in a round of the trace", min=0)

    @classmethod
    def size_bound_bytes(cls, options: Traced) -> int:
        return options.sent


@dataclass(frozen=True, slots=True)
class Declared(ModelDeclarations):
    """A large model known only by the sizes and work of its layers, for ``compute: modelled``.

    See testbed/training/declared.py.
    """

    takes: ClassVar[str] = NOTHING
    name: str = option("resnet50", "a known model", choices=tuple(DECLARED))
    sequence: int = option(0, "tokens of a sample of a language model; 0: its longest", min=0, max=4096)
    file: str = option("", "instead of name: a CSV file with segment,key,elements,forward_flops", path="file")
    buckets: int = option(0, "number of keys of equal size to pack all tensors into; 0: a key each", min=0, max=10**5)

    @classmethod
    def size_bound_bytes(cls, options: Declared) -> int:
        return max(UNKNOWN_MODEL_BYTES, 4 * sum(declared_shape(**asdict(options)).sizes))


MODELS: Axis[Any] = Axis(
    "model",
    {
        "cnn": Cnn,
        "lenet": LeNet,
        "mlp": Mlp,
        "resnet": ResNet,
        "resnet50": ResNet50,
        "vit": VisionTransformer,
        "transformer": Transformer,
        "recommender": Recommender,
        "declared": Declared,
        "script": Script,
        "user_program": UserProgram,
        "traced": Traced,
    },
    base="testbed.training.models.base:Model",
)
