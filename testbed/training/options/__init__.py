"""The models, data sets, splits and optimizers that a scenario may name, and their options; free of torch.

Field metadata (``help``, ``min``, ``max``, ``above``, ``choices``) is what the scenario's errors and the editor's
completion show; ``path`` marks a text that names a file or folder of this machine.
"""

from __future__ import annotations

from typing import Any

from testbed.training.options.datasets import Cifar10, Digits, FashionMnist, Mnist, NoData, ScriptData, Teacher, Text
from testbed.training.options.loading import LOADINGS
from testbed.training.options.models import Cnn, Declared, LeNet, Mlp, ResNet, Script, Transformer
from testbed.training.options.optimizers import Adam, AdamW, DcAsgd, LarsOptions, Nesterov, OptimizerOptions, Sgd
from testbed.training.options.splits import ByClass, ByCount, Contiguous, Dirichlet, Iid

MODELS: dict[str, type[Any]] = {
    "cnn": Cnn,
    "lenet": LeNet,
    "mlp": Mlp,
    "resnet": ResNet,
    "transformer": Transformer,
    "declared": Declared,
    "script": Script,
}
DATASETS: dict[str, type[Any]] = {
    "digits": Digits,
    "mnist": Mnist,
    "fashion_mnist": FashionMnist,
    "cifar10": Cifar10,
    "text": Text,
    "teacher": Teacher,
    "none": NoData,
    "script": ScriptData,
}
SPLITS: dict[str, type[Any]] = {
    "iid": Iid,
    "contiguous": Contiguous,
    "by_class": ByClass,
    "dirichlet": Dirichlet,
    "by_count": ByCount,
}
OPTIMIZERS: dict[str, type[OptimizerOptions]] = {
    "sgd": Sgd,
    "adam": Adam,
    "adamw": AdamW,
    "lars": LarsOptions,
    "dcasgd": DcAsgd,
    "nesterov": Nesterov,
}

__all__ = ["DATASETS", "LOADINGS", "MODELS", "OPTIMIZERS", "SPLITS"]
