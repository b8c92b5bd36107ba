"""Scenarios and how they are read: ``load``, ``loads``, ``json_schema``, and a ``starter`` to begin with."""

from __future__ import annotations

from pathlib import Path

from testbed.facilities import BACK_ENDS
from testbed.scenario.load import json_schema, load, loads
from testbed.scenario.schema import Scenario

__all__ = ["BACK_ENDS", "Scenario", "json_schema", "load", "loads", "starter"]


def starter() -> str:
    return Path(__file__).with_name("starter.yaml").read_text(encoding="utf-8")
