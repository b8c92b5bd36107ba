"""Options of the training data: data sets, their splits over the workers, and where samples are loaded from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from testbed.axes import Axis, option
from testbed.training.options.declarations import (
    NOTHING,
    PROGRAM,
    RECORDS,
    SCRIPT,
    TEXT,
    TRACE,
    DataDeclarations,
    SplitDeclarations,
)

DIGITS = 1797
_ALL: dict[str, Any] = {"min": 0, "max": 10_000_000}
_TRAIN_SAMPLES: dict[str, Any] = {"help": "number of training samples, from the first on; 0: all", **_ALL}
_TEST_SAMPLES: dict[str, Any] = {"help": "number of test samples, from the first on; 0: all", **_ALL}


def _folder(default: str, about: str) -> Any:
    return option(default, about, path="folder")


@dataclass(frozen=True, slots=True)
class Digits(DataDeclarations):
    """scikit-learn's handwritten digits: 1 797 real 8×8 images (UCI), shipped inside the package."""

    test_share: float = option(0.2, "share held out for testing", min=0.05, max=0.9)

    @classmethod
    def sample_bound(cls, options: Digits) -> tuple[tuple[int, ...], int]:
        return (1, 8, 8), 10

    @classmethod
    def training_samples(cls, options: Digits) -> int:
        return DIGITS - round(DIGITS * options.test_share)


@dataclass(frozen=True, slots=True)
class Mnist(DataDeclarations):
    """MNIST (LeCun et al., 1998): 60 000 + 10 000 grey 28×28 images, from its four IDX files in a local folder."""

    folder: str = _folder("data/mnist", "folder of the IDX files, plain or .gz")
    train_samples: int = option(0, **_TRAIN_SAMPLES)
    test_samples: int = option(0, **_TEST_SAMPLES)

    @classmethod
    def sample_bound(cls, options: Mnist) -> tuple[tuple[int, ...], int]:
        return (1, 28, 28), 10


@dataclass(frozen=True, slots=True)
class FashionMnist(Mnist):
    """Fashion-MNIST (Xiao et al., 2017): images of ten kinds of clothes, in the format of MNIST."""

    folder: str = _folder("data/fashion-mnist", "folder of the IDX files, plain or .gz")


@dataclass(frozen=True, slots=True)
class Cifar10(Mnist):
    """CIFAR-10 (Krizhevsky, 2009): 50 000 + 10 000 colour 32×32 images, from the binary version's files."""

    folder: str = _folder("data/cifar-10-batches-bin", "folder of the .bin files")

    @classmethod
    def sample_bound(cls, options: Mnist) -> tuple[tuple[int, ...], int]:
        return (3, 32, 32), 10


@dataclass(frozen=True, slots=True)
class Text(DataDeclarations):
    """A local UTF-8 text file, character by character: each window of characters predicts their successors."""

    gives: ClassVar[str] = TEXT
    file: str = option("data/text.txt", "the text file", path="file")
    context: int = option(64, "characters of a window", min=1, max=4096)
    test_share: float = option(0.1, "share at its end for testing", min=0.01, max=0.9)

    @classmethod
    def sample_bound(cls, options: Text) -> tuple[tuple[int, ...], int]:
        """Return the window's length, and more classes than any text has different characters."""
        return (options.context,), 50_304


@dataclass(frozen=True, slots=True)
class PythonDocs(DataDeclarations):
    """Python's own manual, byte by byte: 466 KB of English and code, in every installation (PSF licence)."""

    gives: ClassVar[str] = TEXT
    context: int = option(128, "bytes of a window, each of which is a token", min=1, max=4096)
    test_share: float = option(0.1, "share at its end for testing", min=0.01, max=0.9)

    @classmethod
    def sample_bound(cls, options: PythonDocs) -> tuple[tuple[int, ...], int]:
        return (options.context,), 256


@dataclass(frozen=True, slots=True)
class Teacher(DataDeclarations):
    """Synthetic: Gaussian images, labelled by a random two-layer network (the teacher) drawn from the run's seed."""

    train_samples: int = option(4096, "training samples", min=1, max=10_000_000)
    test_samples: int = option(1024, "test samples", min=1, max=10_000_000)
    side: int = option(8, "height and width of an image", min=1, max=256)
    channels: int = option(1, "channels of an image", min=1, max=64)
    classes: int = option(10, "number of classes", min=2, max=10_000)
    hidden: int = option(16, "width of the teacher: larger is harder", min=1, max=4096)
    noise: float = option(0.0, "share of training labels drawn at random", min=0, max=1)

    @classmethod
    def sample_bound(cls, options: Teacher) -> tuple[tuple[int, ...], int]:
        return (options.channels, options.side, options.side), options.classes


@dataclass(frozen=True, slots=True)
class SyntheticTokens(DataDeclarations):
    """Synthetic text: each token follows from the one before by a fixed table, or is drawn at random.

    Context and vocabulary are GPT-2's by default; the smallest GPT-2 is {layers: 12, heads: 12, head_width: 64}.
    """

    gives: ClassVar[str] = TEXT
    train_samples: int = option(1024, "training windows", min=1, max=1_000_000)
    test_samples: int = option(64, "test windows", min=1, max=1_000_000)
    context: int = option(1024, "tokens of a window", min=1, max=8192)
    vocabulary: int = option(50_257, "number of tokens", min=2, max=1_000_000)
    noise: float = option(0.1, "share of tokens drawn at random", min=0, max=1)

    @classmethod
    def sample_bound(cls, options: SyntheticTokens) -> tuple[tuple[int, ...], int]:
        return (options.context,), options.vocabulary


@dataclass(frozen=True, slots=True)
class Clicks(DataDeclarations):
    """Synthetic records with one category per field, clicked or not by hidden factors drawn from the run's seed.

    A few categories are frequent and most are rare (Zipf's law), like the users and items of a shop.
    """

    gives: ClassVar[str] = RECORDS
    train_samples: int = option(20_000, "training records", min=1, max=10_000_000)
    test_samples: int = option(2_000, "test records", min=1, max=10_000_000)
    fields: int = option(2, "fields of a record", min=2, max=64)
    categories: int = option(1_000, "categories of a field", min=2, max=10_000_000)
    skew: float = option(1.0, "exponent of Zipf's law; 0: all categories are equally frequent", min=0, max=4)
    factors: int = option(4, "hidden factors of a category: more are harder", min=1, max=64)
    noise: float = option(0.0, "share of training labels drawn at random", min=0, max=1)

    @classmethod
    def sample_bound(cls, options: Clicks) -> tuple[tuple[int, ...], int]:
        return (options.fields,), 2


@dataclass(frozen=True, slots=True)
class MovieLens(DataDeclarations):
    """MovieLens (Harper and Konstan, 2015): whether a user gives a film 4 stars or more; from a local file."""

    gives: ClassVar[str] = RECORDS
    file: str = option("data/ml-100k/u.data", "u.data, ratings.dat or ratings.csv, plain or .gz", path="file")
    test_share: float = option(0.1, "share held out for testing", min=0.01, max=0.9)

    @classmethod
    def sample_bound(cls, options: MovieLens) -> tuple[tuple[int, ...], int]:
        return (2,), 2


@dataclass(frozen=True, slots=True)
class NoData(DataDeclarations):
    """No samples, for a declared model, which computes nothing."""

    gives: ClassVar[str] = NOTHING


@dataclass(frozen=True, slots=True)
class ScriptData(DataDeclarations):
    """The data of a user's script."""

    gives: ClassVar[str] = SCRIPT
    of_workload: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class UserProgramData(DataDeclarations):
    """The data of a user's program, if it has any."""

    gives: ClassVar[str] = PROGRAM
    of_workload: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class TracedData(DataDeclarations):
    """The data of a job that was traced elsewhere."""

    gives: ClassVar[str] = TRACE
    of_workload: ClassVar[bool] = True


DATASETS: Axis[Any] = Axis(
    "data",
    {
        "digits": Digits,
        "mnist": Mnist,
        "fashion_mnist": FashionMnist,
        "cifar10": Cifar10,
        "text": Text,
        "python_docs": PythonDocs,
        "teacher": Teacher,
        "tokens": SyntheticTokens,
        "clicks": Clicks,
        "movielens": MovieLens,
        "none": NoData,
        "script": ScriptData,
        "user_program": UserProgramData,
        "traced": TracedData,
    },
    base="testbed.training.datasets.base:DataSource",
)


# ---- splits over the workers ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Iid(SplitDeclarations):
    """Shuffle once, then cut into equal contiguous shares, one per worker."""

    equal: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Contiguous(SplitDeclarations):
    """Cut the data in its own order into equal shares: worker s of N gets samples s·⌊n/N⌋ to (s+1)·⌊n/N⌋ (GeoMX)."""

    equal: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class ByClass(SplitDeclarations):
    """Sort by class, then cut into equal contiguous shares (GeoMX's --split-by-class)."""

    equal: ClassVar[bool] = True
    needs_classes: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Dirichlet(SplitDeclarations):
    """Each class is dealt out in proportions drawn from Dirichlet(alpha) (Hsu et al., 2019; Li et al., 2022)."""

    needs_classes: ClassVar[bool] = True

    alpha: float = option(0.5, "small: few classes per worker; large: alike", min=0.01, max=1e6)
    least: int = option(
        0,
        "fewest samples of a worker: those with fewer get some of the worker with the most",
        min=0,
        max=1_000_000,
    )


@dataclass(frozen=True, slots=True)
class ByCount(SplitDeclarations):
    """Shuffle once, then cut into shares of different sizes."""

    shares: str = option("", "one number per worker, e.g. '4 2 1 1'; proportional")
    skew: float = option(0.0, "without shares: worker r gets 1/(r+1)^skew of what the first gets", min=0, max=10)

    def problems(self) -> Iterator[tuple[str, str, str]]:
        if self.shares and self.skew:
            yield "skew", "has no effect beside 'shares'", "keep one of them"


SPLITS: Axis[Any] = Axis(
    "split",
    {
        "iid": Iid,
        "contiguous": Contiguous,
        "by_class": ByClass,
        "dirichlet": Dirichlet,
        "by_count": ByCount,
    },
    base="testbed.training.splits.base:Split",
)


# ---- the source of samples: memory, or a hierarchy of caches --------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InMemory:
    """All samples are decoded and in memory when training begins: loading takes no time."""

    loads: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Cached:
    """Three levels (the DataCache of Shi et al., MLSys 2021): remote source, local disk, decoded samples in memory.

    Caching does not change the batches. The samples of the next batches are loaded while a step computes.
    """

    loads: ClassVar[bool] = True

    source: str = option(
        "",
        "data centre that has the samples and sends them over its links; default: a store "
        "beside every worker, with 'rate' and 'latency'",
    )
    rate: float = option(100e6, "rate of the store, for each worker", unit="bit/s")
    latency: float = option(0.02, "latency of the store, for each request", unit="s")
    decode: float = option(0.0, "time to decode one sample", unit="s")
    disk: int = option(1 << 30, "space for encoded samples on each node", unit="bytes")
    memory: int = option(1 << 30, "space for decoded samples on each node", unit="bytes")
    folder: str = option("", "folder of the disk level, which then persists; default: it lasts as long as the run")
    prefetch: int = option(2, "batches loaded ahead", min=0, max=1000)
    spread: bool = option(False, "each worker of a data centre caches its share of the samples for the others")


LOADINGS: Axis[InMemory | Cached] = Axis("loading", {"in_memory": InMemory, "cached": Cached})
