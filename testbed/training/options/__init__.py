"""The models, data sets, splits and optimizers that a scenario may name, and their options; free of torch.

Errors of scenarios and the editor's completion use the fields' metadata (``help``, ``min``, ``max``, ``above``,
``choices``); ``path`` marks a text that names a file or folder of this machine.
"""

from __future__ import annotations

from testbed.training.options.datasets import DATASETS, LOADINGS, SPLITS
from testbed.training.options.models import MODELS
from testbed.training.options.optimizers import OPTIMIZERS

__all__ = ["DATASETS", "LOADINGS", "MODELS", "OPTIMIZERS", "SPLITS"]
