"""The models, data sets, splits and optimizers that a scenario may name, and their options; free of torch.

Field metadata (``help``, ``min``, ``max``) is what the scenario's errors and the editor's completion show.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Cnn:
    """GeoMX's demo CNN: two convolutions, three dense layers; 178 762 parameters at 28×28, 80 458 at 8×8."""


@dataclass(frozen=True, slots=True)
class Mlp:
    """A multi-layer perceptron with ReLU."""

    hidden: int = field(default=64, metadata={"help": "width of each hidden layer", "min": 1, "max": 65_536})
    layers: int = field(default=1, metadata={"help": "number of hidden layers", "min": 1, "max": 64})


@dataclass(frozen=True, slots=True)
class Digits:
    """scikit-learn's handwritten digits: 1 797 real 8×8 images (UCI), shipped inside the package."""

    test_share: float = field(default=0.2, metadata={"help": "share held out for testing", "min": 0.05, "max": 0.9})


@dataclass(frozen=True, slots=True)
class Iid:
    """Shuffle once, then cut into equal contiguous shares, one per worker."""


@dataclass(frozen=True, slots=True)
class ByClass:
    """Sort by class, then cut into equal contiguous shares (GeoMX's --split-by-class)."""


@dataclass(frozen=True, slots=True)
class Sgd:
    """Stochastic gradient descent. The gradient that arrives is the sum over all workers of mean gradients."""

    learning_rate: float = field(default=0.01, metadata={"help": "step size", "min": 1e-12, "max": 100})
    momentum: float = field(default=0.0, metadata={"help": "heavy-ball momentum", "min": 0, "max": 1})
    at: str = field(default="global", metadata={"help": "where it runs", "choices": ("global",)})


@dataclass(frozen=True, slots=True)
class Adam:
    """Adam (Kingma and Ba, 2015)."""

    learning_rate: float = field(default=0.001, metadata={"help": "step size", "min": 1e-12, "max": 100})
    beta1: float = field(default=0.9, metadata={"help": "decay of the mean", "min": 0, "max": 0.999999})
    beta2: float = field(default=0.999, metadata={"help": "decay of the square", "min": 0, "max": 0.999999})
    epsilon: float = field(default=1e-8, metadata={"help": "added to the root", "min": 0, "max": 1})
    at: str = field(default="global", metadata={"help": "where it runs", "choices": ("global",)})


MODELS = {"cnn": Cnn, "mlp": Mlp}
DATASETS = {"digits": Digits}
SPLITS = {"iid": Iid, "by_class": ByClass}
OPTIMIZERS = {"sgd": Sgd, "adam": Adam}
