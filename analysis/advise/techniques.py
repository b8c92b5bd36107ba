"""The techniques that are tried: those that ship."""

from __future__ import annotations

from analysis.advise.candidates import Technique
from testbed.errors import ScenarioError
from testbed.scenario.shipped import FOLDER
from testbed.scenario.sweep import read_techniques
from testbed.suggest import nearest_or_all


def shipped() -> dict[str, Technique]:
    """Return all techniques by name."""
    found = read_techniques(FOLDER / "large" / "techniques.yaml")
    return {name: Technique(tuple(f"{path}={value}" for path, value in each.items())) for name, each in found.items()}


def techniques(names: str | None = None) -> dict[str, Technique]:
    """Return the techniques of a comma-separated list of names, or all. Raise ``ScenarioError`` for an unknown one."""
    known = shipped()
    if names is None or names == "all":
        return known
    wanted = [name.strip() for name in names.split(",")]
    for name in wanted:
        if name not in known:
            raise ScenarioError(f"--techniques: '{name}': no such technique ({nearest_or_all(name, known, 20)})")
    return {name: known[name] for name in wanted}
