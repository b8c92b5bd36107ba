"""A scenario as YAML text: the resolved form that a run directory keeps, and the starter for a new one."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from testbed.scenario.load import resolved
from testbed.scenario.schema import Scenario
from testbed.scenario.topology.topology import Topology


def resolved_yaml(scenario: Scenario) -> str:
    """Return the scenario with overrides, defaults and the points of trace files; it loads to an equal scenario."""
    return _dump(resolved(scenario))


def topology_yaml(topology: Topology) -> str:
    """Return a topology written out, in the form that ``use`` reads; loads to an equal topology."""
    return _dump(resolved(topology))


def _dump(value: Any) -> str:
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.width = 120
    stream = io.StringIO()
    yaml.dump(value, stream)
    return stream.getvalue()


def starter() -> str:
    """Return a commented scenario to begin with."""
    return (Path(__file__).parent / "starter.yaml").read_text(encoding="utf-8")
