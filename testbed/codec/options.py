"""The declarations of a codec, and the options of each codec that a scenario can name.

This module does not import torch, so that reading a scenario stays quick. The metadata of the fields (``help``,
``min``, ``max``, ``above``, ``choices``) serve to validate scenarios and to explain the options.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from testbed.axes import Axis, option
from testbed.preset import Preset


class CodecDeclarations:
    """Properties of a codec, as class attributes.

    exact       decoding returns exactly the encoded bits, up and down
    dense       the payload is the tensor, element by element: it can be cut at any element, and sums of payloads are
                payloads of the sum
    elementwise a decoded element depends only on the same element of this and of earlier tensors, so cutting a tensor
                into pieces does not change the numbers. ``dense`` codecs are elementwise
    has_memory  the payload depends on earlier tensors (residuals, momentum, mirrors of the other end)
    fades       the residual decays, so part of it is never sent; with the options of ``to_add_up`` it does not decay
    summed      it is a ``SummedCodec``: all-reduce sums its payloads on their way, even if it has memory
    sparse      it sends some elements of most tensors at once, and the others later
    size_only   the size of a pushed payload depends only on the tensor's size or, with ``by_shape``, on its shape
    by_shape    it needs the shapes of tensors (``Codec.declare``), so small tensors are not joined
    adjustable  the share of the elements that it sends can be changed while it runs (``Codec.adjust``)
    encode_s_per_element, decode_s_per_element
                seconds for one element of a large tensor on one core, in virtual time, for codecs without a row in the
                table of measured costs. The default is about the time of a copy with some arithmetic
    geomx       the codec's name in GeoMX's ``set_gradient_compression``, and the option that its ``threshold`` sets
    presets     the presets of this class; it does not inherit those of a base class
    """

    exact: ClassVar[bool] = False
    dense: ClassVar[bool] = False
    elementwise: ClassVar[bool] = False
    has_memory: ClassVar[bool] = False
    fades: ClassVar[bool] = False
    summed: ClassVar[bool] = False
    sparse: ClassVar[bool] = False
    size_only: ClassVar[bool] = False
    by_shape: ClassVar[bool] = False
    adjustable: ClassVar[bool] = False
    encode_s_per_element: ClassVar[float] = 4e-9
    decode_s_per_element: ClassVar[float] = 4e-9
    geomx: ClassVar[tuple[str, str]] = ("", "")
    presets: ClassVar[tuple[Preset, ...]] = ()

    @classmethod
    def to_add_up(cls, options: Any) -> dict[str, Any]:
        """Return the changes to ``options`` that make the sent and the withheld parts add up to the given tensor.

        These switch off momentum correction, clipping and decay, and are needed where tensors are not gradients.
        """
        return {}

    @classmethod
    def sends_part(cls, options: Any) -> bool:
        """Return whether each element is sent only once in a while, so that a momentum would apply it repeatedly."""
        return cls.sparse

    @classmethod
    def pull_on(cls, options: Any, tier: int) -> str:
        """Return how values are sent back on ``tier``.

        ``dense``: all elements; ``changed``: all elements that differ from the child's; ``sparse-sum``: the non-zero
        elements, for sums of sparse gradients; ``difference``: the elements that differ most from the child's, for
        parameters.
        """
        return "dense"


DENSE = "dense"
CHANGED = "changed"
DIFFERENCE = "difference"
PULLS = (DIFFERENCE, "sparse-sum", CHANGED, DENSE)
MIRRORED = (DIFFERENCE, CHANGED)  # the server keeps a mirror of the child's value
# at most half of the elements: pairs of value and index for more would be larger than the tensor itself
_RATIO: dict[str, Any] = {"help": "share of the elements that is sent", "above": 0, "max": 0.5}

# each element is sent only once in a while: momentum, of the codec or the optimizer, would apply it again in each round
_WITHOUT_MOMENTUM: dict[str, Any] = {"kind": "adam", "beta1": 0}
_SUMS: dict[str, Any] = {"ratio": "0.05", "bound": 1000, "pull": "sparse-sum", "momentum": 0}
_CHANGES: dict[str, Any] = {"ratio": "0.05", "pull_ratio": "0.05"}

ROWS = "rows"  # how parameter servers send embedding tables: the rows that a batch needs (testbed.codec.rows)


@dataclass(frozen=True, slots=True)
class NoneOptions(CodecDeclarations):
    """Tensors travel as float32, unchanged."""

    exact: ClassVar[bool] = True
    dense: ClassVar[bool] = True
    size_only: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Fp16Options(CodecDeclarations):
    """float16 on the wire, both ways; sums in float32."""

    dense: ClassVar[bool] = True
    size_only: ClassVar[bool] = True
    presets: ClassVar[tuple[Preset, ...]] = (
        Preset(name="fp16", summary="half-precision numbers travel, both ways", source="GeoMX", settings={"codec": {}}),
    )


@dataclass(frozen=True, slots=True)
class TwoBitOptions(CodecDeclarations):
    """Two bits an element up, with a residual; dense down."""

    elementwise: ClassVar[bool] = True
    has_memory: ClassVar[bool] = True
    size_only: ClassVar[bool] = True
    geomx: ClassVar[tuple[str, str]] = ("2bit", "threshold")

    threshold: float = option(0.5, "what one code stands for", above=0, max=1e30)


@dataclass(frozen=True, slots=True)
class SparseOptions(CodecDeclarations):
    """What all sparse codecs share. Keys below ``bound`` elements travel dense and exact.

    ``pull`` is the pull direction. ``difference``: for parameters, with the optimizer on the servers or MixedSync; the
    server remembers what the child holds and sends the largest differences, so that nothing is lost, only late.
    ``sparse-sum``: for sums of gradients, with the optimizer on the workers, as in GeoMX; the non-zero elements,
    exactly. ``changed``: the elements that have changed, exactly, where values without a contribution stay as they are.
    ``dense``: everything.
    """

    has_memory: ClassVar[bool] = True
    sparse: ClassVar[bool] = True
    adjustable: ClassVar[bool] = True

    ratio: float = option(0.01, **_RATIO)
    bound: int = option(1000, "elements from which a key is sent sparse", min=2)
    pull: str = option(DIFFERENCE, "how values are sent back", choices=PULLS)
    pull_ratio: float = field(
        default=0.01, metadata={**_RATIO, "help": "share of the elements sent down with pull: difference"}
    )
    padded: bool = option(False, "fill payloads to GeoMX's fixed size, to compare byte counts with it")

    @classmethod
    def pull_on(cls, options: SparseOptions, tier: int) -> str:
        return options.pull


@dataclass(frozen=True, slots=True)
class BiSparseOptions(SparseOptions):
    """Bi-Sparse: momentum-corrected top-k up, sparse down (GeoMX; DGC, Lin et al., 2018)."""

    geomx: ClassVar[tuple[str, str]] = ("bsc", "ratio")
    presets: ClassVar[tuple[Preset, ...]] = (
        Preset(
            name="bisparse",
            summary="the largest 5 % of gradients cross the WAN, and sparse sums of them come back",
            source="GeoMX; Lin et al., ICLR 2018",
            settings={"codec": {"tier1": "none", "tier2": _SUMS}, "optimizer": _WITHOUT_MOMENTUM},
        ),
    )

    momentum: float = option(0.9, "factor of the momentum correction of gradients; 0: none", min=0, max=1)

    @classmethod
    def to_add_up(cls, options: Any) -> dict[str, Any]:
        plain = {"momentum": 0, "clip_norm": 0}
        return {name: value for name, value in plain.items() if getattr(options, name, value) != value}


@dataclass(frozen=True, slots=True)
class DgcOptions(BiSparseOptions):
    """Deep Gradient Compression: Bi-Sparse with a warm-up of the ratio and clipping of local gradients.

    In warm-up stage s of S the ratio is ratio^((s+1)/(S+1)): 25, 6.3, 1.6, 0.4 % on the way to 0.1 %, as in the
    authors' code. A gradient with a norm above clip_norm/√contributors is scaled down to it, key by key.
    """

    ratio: float = option(0.001, **_RATIO)
    warmup_stages: int = option(4, "stages of the warm-up; 0: none", min=0, max=20)
    stage_rounds: int = option(50, "rounds in one stage (the paper: an epoch)", min=1)
    clip_norm: float = option(0.0, "largest norm of the sum of all contributors' gradients; 0: no clipping", min=0)


@dataclass(frozen=True, slots=True)
class MpqOptions(BiSparseOptions):
    """Mixed precision: small keys float16 on both tiers, large ones float32 on tier 1 and Bi-Sparse on tier 2."""

    presets: ClassVar[tuple[Preset, ...]] = (
        Preset(
            name="mpq",
            summary="mixed precision: small tensors as float16, of large ones the largest 5 % of gradients on the WAN",
            source="GeoMX",
            settings={"codec": _SUMS, "optimizer": _WITHOUT_MOMENTUM},
        ),
    )

    @classmethod
    def pull_on(cls, options: SparseOptions, tier: int) -> str:
        return options.pull if tier == 2 else "dense"


@dataclass(frozen=True, slots=True)
class TopKOptions(SparseOptions):
    """The largest elements, with error feedback, without momentum correction."""


@dataclass(frozen=True, slots=True)
class RandomKOptions(SparseOptions):
    """Random elements, with error feedback: the baseline."""


@dataclass(frozen=True, slots=True)
class MsTopKOptions(SparseOptions):
    """Top-k with error feedback, by MSTopK's bisection for a threshold (Shi et al., 2021)."""

    presets: ClassVar[tuple[Preset, ...]] = (
        Preset(
            name="mstopk",
            summary="about the largest 5 % of gradients cross the WAN, and of the values those that changed most",
            source="Shi et al., MLSys 2021",
            settings={"codec": {"tier1": "none", "tier2": _CHANGES}, "optimizer": _WITHOUT_MOMENTUM},
        ),
    )

    selector: str = option(
        "published",
        "published: bisection for a threshold between the mean and the largest magnitude, and a random run of what "
        "lies between the last two thresholds; exact: the largest, as topk",
        choices=("published", "exact"),
    )
    samplings: int = option(30, "counts that the published search makes", min=1, max=100)


def _without_fading(options: Any) -> dict[str, Any]:
    return {} if options.decay == 1 else {"decay": 1}


@dataclass(frozen=True, slots=True)
class SparseLoCoOptions(CodecDeclarations):
    """The largest elements of every chunk, as two-bit values, with a decayed error feedback (Sarfi et al., 2025)."""

    has_memory: ClassVar[bool] = True
    sparse: ClassVar[bool] = True
    size_only: ClassVar[bool] = True
    fades: ClassVar[bool] = True
    presets: ClassVar[tuple[Preset, ...]] = (
        Preset(
            name="sparseloco",
            summary="15 local steps, then of every 4 096 changes the 64 largest are pushed over the WAN, as two-bit "
            "values, and the values that these have changed come down",
            source="Sarfi et al., 2025",
            settings={
                "sync": {"kind": "diloco", "h": 15, "outer_learning_rate": 1, "outer_momentum": 0},
                "codec": {"tier1": "none", "tier2": {"pull": CHANGED}},
            },
            defining=("sync.kind",),
        ),
    )

    chunk: int = option(4096, "elements of a chunk", min=2, max=4096)
    k: int = option(64, "elements of a chunk that are sent; if as many as 'chunk': all, without positions", min=1)
    bits: int = option(2, "bits of a value", min=1, max=8)
    sigmas: float = option(6.0, "width of all bins together, in standard deviations", above=0, max=100)
    decay: float = option(
        0.95, "share of what was not sent that is kept for the next round (β); 1: all", above=0, max=1
    )
    pull: str = option(
        DENSE,
        "how values are sent back. changed: those that have changed, for an outer step without momentum; dense: all",
        choices=(CHANGED, DENSE),
    )

    @classmethod
    def pull_on(cls, options: Any, tier: int) -> str:
        return str(options.pull)

    def problems(self) -> Iterator[tuple[str, str, str]]:
        """Yield a problem if ``k`` is larger than a chunk."""
        if self.k > self.chunk:
            yield "k", f"{self.k} of {self.chunk} elements", f"write {self.chunk} or less"

    @classmethod
    def sends_part(cls, options: Any) -> bool:
        return bool(options.k < options.chunk)

    @classmethod
    def to_add_up(cls, options: Any) -> dict[str, Any]:
        return _without_fading(options)


@dataclass(frozen=True, slots=True)
class DeMoOptions(CodecDeclarations):
    """Each worker keeps its momentum to itself, and sends its largest cosine coefficients (Peng et al., 2024)."""

    has_memory: ClassVar[bool] = True
    sparse: ClassVar[bool] = True
    size_only: ClassVar[bool] = True
    by_shape: ClassVar[bool] = True
    fades: ClassVar[bool] = True
    presets: ClassVar[tuple[Preset, ...]] = (
        Preset(
            name="demo",
            summary="every step, of each tile of 64 × 64 the 32 largest cosine coefficients of a worker's momentum",
            source="Peng et al., 2024",
            settings={
                "codec": {},
                "paradigm": {"kind": "allreduce"},
                "optimizer": {"kind": "signsgd", "learning_rate": "0.004"},
            },
            defining=("optimizer.kind",),
        ),
    )

    chunk: int = option(64, "longest side of a tile", min=1, max=256)
    k: int = option(32, "coefficients of a tile that are sent", min=1, max=65_536)
    decay: float = option(0.999, "decay of the momentum (β); 1: none", above=0, max=1)

    @classmethod
    def to_add_up(cls, options: Any) -> dict[str, Any]:
        return _without_fading(options)


@dataclass(frozen=True, slots=True)
class PowerSgdOptions(CodecDeclarations):
    """The two factors of a low-rank approximation of every matrix (Vogels et al., 2019)."""

    has_memory: ClassVar[bool] = True
    size_only: ClassVar[bool] = True
    by_shape: ClassVar[bool] = True
    summed: ClassVar[bool] = True
    presets: ClassVar[tuple[Preset, ...]] = (
        Preset(
            name="powersgd",
            summary="no servers: of every matrix the factors of an approximation of rank 2 are summed, around a ring",
            source="Vogels et al., NeurIPS 2019",
            settings={"codec": {"start": 100}, "paradigm": {"kind": "allreduce"}},
        ),
    )

    rank: int = option(2, "columns of a factor", min=1, max=1024)
    least_saving: float = option(
        2.0, "a matrix is sent whole unless its factors are this many times smaller", min=1, max=1e6
    )
    start: int = option(0, "first steps, in which all is sent whole", max=10**9)


@dataclass(frozen=True, slots=True)
class SubspaceOptions(CodecDeclarations):
    """The coordinates of each row of a tensor in a fixed random subspace (Protocol Models, 2025): for activations."""

    size_only: ClassVar[bool] = True

    rank: int = option(8, "dimensions of the subspace: numbers that are sent for a row", min=1, max=65_536)
    width: int = option(64, "elements of a row: of activations, the width of the model", min=2, max=65_536)


CODECS: Axis[CodecDeclarations] = Axis(
    "codec",
    {
        "none": NoneOptions,
        "fp16": Fp16Options,
        "twobit": TwoBitOptions,
        "bisparse": BiSparseOptions,
        "dgc": DgcOptions,
        "mpq": MpqOptions,
        "mstopk": MsTopKOptions,
        "topk": TopKOptions,
        "randomk": RandomKOptions,
        "sparseloco": SparseLoCoOptions,
        "demo": DeMoOptions,
        "powersgd": PowerSgdOptions,
        "subspace": SubspaceOptions,
    },
    base="testbed.codec.base:Codec",
)
