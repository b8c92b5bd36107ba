"""What a user may write, and how it is read: ``load``, ``loads``, ``resolved_yaml``, ``json_schema``, ``starter``."""

from __future__ import annotations

from testbed.scenario.load import json_schema, load, loads
from testbed.scenario.schema import Scenario
from testbed.scenario.sections.run import BACK_ENDS
from testbed.scenario.write import resolved_yaml, starter

__all__ = ["BACK_ENDS", "Scenario", "json_schema", "load", "loads", "resolved_yaml", "starter"]
