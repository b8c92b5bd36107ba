"""``workload: {script: FILE}``: the script takes the place of model and data."""

from __future__ import annotations

import hashlib
from typing import Any

from pydantic import ValidationInfo

from testbed.scenario.files import beside
from testbed.scenario.quantities import is_null, text_of
from testbed.scenario.rules import Violation, raise_found


def with_script(data: Any, info: ValidationInfo) -> Any:
    """The scenario's tree with model and data that say ``script``; unchanged without a workload."""
    workload = data.get("workload") if isinstance(data, dict) else None
    if not isinstance(workload, dict) or "script" not in workload or is_null(workload["script"]):
        return data
    training = data.get("training", {})
    if not isinstance(training, dict) or training.get("data") == {"kind": "script"}:
        return data
    raise_found(
        Violation(("training", key), "has no effect beside 'workload'", "the script brings its own; remove it")
        for key in ("model", "data", "split", "batch", "compute", "target_accuracy")
        if key in training
    )
    raise_found(
        [Violation(("optimizer",), "has no effect beside 'workload'", "remove it")] if "optimizer" in data else []
    )
    path = beside(text_of(workload["script"]), info)
    if not path.is_file():
        raise_found([Violation(("workload", "script"), f"there is no file {path.name} beside the scenario")])
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    model = {"kind": "script", "file": str(path), "sha256": digest}
    return {**data, "training": {**training, "model": model, "data": {"kind": "script"}}}
