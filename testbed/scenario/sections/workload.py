"""The section ``workload``: ``{script: FILE}`` takes the place of model and data."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

from pydantic import ValidationInfo

from testbed.scenario.reading.files import beside
from testbed.scenario.reading.quantities import TEXT, is_null, text_of
from testbed.scenario.reading.section import Section
from testbed.scenario.reading.violations import Violation, raise_found

_DATA = {"kind": "script"}


class Workload(Section):
    """A user's own training code instead of a model and data by name."""

    script: Annotated[str, TEXT]
    """A Python file in or below the scenario's folder; see testbed/kvstore for what it may call."""


def with_script(data: Any, info: ValidationInfo) -> Any:
    """Return the scenario's tree with ``script`` as model and data; unchanged without a workload."""
    workload = data.get("workload") if isinstance(data, dict) else None
    script = workload.get("script") if isinstance(workload, dict) else None
    training = data.get("training", {}) if isinstance(data, dict) else None
    if is_null(script) or not isinstance(training, dict) or training.get("data") == _DATA:
        return data
    raise_found(
        Violation(("training", key), "has no effect beside 'workload'", "the script brings its own; remove it")
        for key in ("model", "data", "split", "batch", "compute", "target_accuracy")
        if key in training
    )
    raise_found(
        [Violation(("optimizer",), "has no effect beside 'workload'", "remove it")] if "optimizer" in data else []
    )
    path = beside(text_of(script), info)
    if not path.is_file():
        raise_found([Violation(("workload", "script"), f"there is no file {path.name} beside the scenario")])
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    model = {"kind": "script", "file": str(path), "sha256": digest}
    return {**data, "training": {**training, "model": model, "data": _DATA}}
