"""The models, data sets, splits and optimizers that a scenario may name, and their options. Imports no torch.

Error messages and the editor's completion use the fields' metadata (``help``, ``min``, ``max``, ``above``,
``choices``). ``path`` marks a string that names a file or folder on this machine.
"""

from __future__ import annotations

from testbed.training.options.datasets import DATASETS, LOADINGS, SPLITS
from testbed.training.options.models import MODELS
from testbed.training.options.optimizers import OPTIMIZERS

__all__ = ["DATASETS", "LOADINGS", "MODELS", "OPTIMIZERS", "SPLITS"]
