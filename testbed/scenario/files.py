"""Files that a scenario names: in or below its own folder, so that a stranger's scenario reads nothing else."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationInfo

from testbed.scenario.quantities import refuse


def beside(file: str, info: ValidationInfo) -> Path:
    """The path of a file beside the scenario. Raises a refusal when it is outside, or the scenario is no file."""
    folder: Path | None = (info.context or {}).get("folder")
    if folder is None:
        raise refuse(f"file '{file}' is relative to a scenario file, and this scenario is none")
    path = (folder / file).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise refuse(f"file '{file}' lies outside the scenario's folder")
    return path
