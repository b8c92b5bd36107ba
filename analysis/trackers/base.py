"""The protocol of trackers, and the parameters of a run that all of them write."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol

from testbed.errors import CapabilityError
from testbed.results.scalars import SeriesValue

Plan = Mapping[str, Any]
"""The content of ``plan.json``."""
_MODULES = {"tensorboard": "torch.utils.tensorboard", "wandb": "wandb", "mlflow": "mlflow"}


class Tracker(Protocol):
    """Writes one run in a tracker's format. ``out``: a folder for this run, or for many runs; see ``shares``."""

    shares: ClassVar[bool]
    """Whether many runs share one folder."""
    files: list[Path]
    """The files that it writes; complete after ``close``."""

    def __init__(self, run: str, plan: Plan, out: Path) -> None: ...

    def write(self, scalars: Iterable[SeriesValue]) -> None:
        """Write values, so that users can see them at once."""

    def close(self, summary: Mapping[str, float]) -> None:
        """End the run with a summary of its result."""


def parameters(plan: Plan) -> dict[str, str]:
    """Return the parameters that distinguish runs: back end, seed, and the technique of every axis with its options."""
    found = {"back_end": str(plan["back_end"]), "seed": str(plan["seed"])}
    for axis, chosen in plan["technique"].items():
        found[axis] = chosen["kind"]
        found |= {f"{axis}.{name}": str(value) for name, value in chosen["options"].items()}
    return found


def needed(kind: str) -> Any:
    """Return the module of a tracker. Raise ``CapabilityError`` if its package is missing."""
    try:
        return importlib.import_module(_MODULES[kind])
    except ImportError as error:
        cure = f"{sys.executable} -m pip install {kind}"
        raise CapabilityError(f"the package '{kind}' is missing, the extra [{kind}] of this project: {cure}") from error
