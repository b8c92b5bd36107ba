"""Scenarios with a workload: what the workload itself brings, so that other sections must not set it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationInfo
from pydantic_core import PydanticCustomError

from testbed.axes import sha256_of
from testbed.scenario.program import with_program, without_sections
from testbed.scenario.reading.declared import resolved
from testbed.scenario.reading.files import allows_code, beside
from testbed.scenario.reading.quantities import is_null, text_of
from testbed.scenario.reading.violations import Violation, raise_found
from testbed.scenario.trace import with_trace, without_training
from testbed.settings.job import Workload

_OWN_OF_SCRIPTS = ("model", "data", "split", "batch", "compute", "target_accuracy", "target_loss")


def with_workload(data: Any, info: ValidationInfo) -> Any:
    """Return the scenario's tree with the ``training`` that its workload implies; unchanged without a workload."""
    workload = data.get("workload") if isinstance(data, dict) else None
    if isinstance(workload, Workload):
        workload = resolved(workload)
    if not isinstance(workload, dict):
        return data
    data = {**data, "workload": workload}
    if not is_null(workload.get("script")) and isinstance(data.get("training", {}), dict):
        data = _with_script(data, info)
    if not all(is_null(workload.get(key)) for key in ("command", "first")):
        data = with_program(data, info)
    elif is_null(workload.get("script")) and not is_null(workload.get("trace")):
        data = with_trace(data, info)
    return data


def _with_script(data: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
    """Return the tree with the script as model and data. Raise a refusal for keys that the script itself decides."""
    training = data.get("training", {})
    workload = data["workload"]
    raise_found(
        Violation(("training", key), "has no effect beside 'workload'", "the script brings its own; remove it")
        for key in _OWN_OF_SCRIPTS
        if key in training
    )
    raise_found(
        [Violation(("optimizer",), "has no effect beside 'workload'", "remove it")] if "optimizer" in data else []
    )
    path = _script(text_of(workload.get("script")), info)
    model = {"kind": "script", "file": str(path), "sha256": sha256_of(path)}
    training = {**training, "model": model, "data": {"kind": "script"}}
    return {**data, "workload": dict(workload, script=str(path)), "training": training}


def _script(text: str, info: ValidationInfo) -> Path:
    """Return the script's path. An absolute path, as in a resolved scenario, is allowed only if code is."""
    path = Path(text)
    if not path.is_absolute():
        try:
            path = beside(text, info)
        except PydanticCustomError as error:  # outside a field, pydantic has no place for the error
            told = error.context or {}
            raise_found([Violation(("workload", "script"), told["problem"], told["hint"])])
    elif not allows_code(info):
        problem = f"'{text}' is an absolute path, but this file is not at or below the working directory"
        raise_found([Violation(("workload", "script"), problem, "read that script first, then give --allow-code")])
    if not path.is_file():
        raise_found([Violation(("workload", "script"), f"there is no file {path.name} beside the scenario")])
    return path


def without_own(resolved: dict[str, Any], workload: Workload) -> dict[str, Any]:
    """Return a resolved scenario without the values that its workload decides or makes useless."""
    if workload.is_program:
        return without_sections(resolved)
    if workload.trace:
        return without_training(resolved)
    training = {key: value for key, value in resolved["training"].items() if key not in _OWN_OF_SCRIPTS}
    return {key: training if key == "training" else value for key, value in resolved.items() if key != "optimizer"}
