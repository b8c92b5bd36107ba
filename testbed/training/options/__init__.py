"""The models, data sets, splits and optimizers that a scenario may name, and their options; free of torch.

Errors of scenarios and the editor's completion use the fields' metadata (``help``, ``min``, ``max``, ``above``,
``choices``); ``path`` marks a text that names a file or folder of this machine.
"""

from __future__ import annotations

from typing import Any

from testbed.axes import Axis
from testbed.training.options.datasets import (
    Cifar10,
    Clicks,
    Digits,
    FashionMnist,
    Mnist,
    MovieLens,
    NoData,
    ScriptData,
    SyntheticTokens,
    Teacher,
    Text,
    UserProgramData,
)
from testbed.training.options.loading import LOADINGS
from testbed.training.options.models import (
    Cnn,
    Declared,
    LeNet,
    Mlp,
    Recommender,
    ResNet,
    ResNet50,
    Script,
    Transformer,
    UserProgram,
    VisionTransformer,
)
from testbed.training.options.optimizers import Adam, AdamW, DcAsgd, LarsOptions, Nesterov, Sgd
from testbed.training.options.splits import ByClass, ByCount, Contiguous, Dirichlet, Iid

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
    },
    base="testbed.training.models.base:Model",
)
DATASETS: Axis[Any] = Axis(
    "data",
    {
        "digits": Digits,
        "mnist": Mnist,
        "fashion_mnist": FashionMnist,
        "cifar10": Cifar10,
        "text": Text,
        "teacher": Teacher,
        "tokens": SyntheticTokens,
        "clicks": Clicks,
        "movielens": MovieLens,
        "none": NoData,
        "script": ScriptData,
        "user_program": UserProgramData,
    },
    base="testbed.training.datasets.base:DataSource",
)
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
OPTIMIZERS: Axis[Any] = Axis(
    "optimizer",
    {
        "sgd": Sgd,
        "adam": Adam,
        "adamw": AdamW,
        "lars": LarsOptions,
        "dcasgd": DcAsgd,
        "nesterov": Nesterov,
    },
    base="testbed.training.optimizers.base:KeyStep",
)

__all__ = ["DATASETS", "LOADINGS", "MODELS", "OPTIMIZERS", "SPLITS"]
