"""A table of measured costs, from a CSV file beside the scenario."""

from __future__ import annotations

import json
from typing import Any

from testbed.costs import LONGEST_S, Row, read_costs
from testbed.scenario.reading.tables import table


def _unpacked(text: str) -> dict[str, Row]:
    costs = {name: Row(*map(float, seconds)) for name, seconds in json.loads(text or "{}").items()}
    if not all(0 <= seconds < LONGEST_S for row in costs.values() for seconds in row):
        raise ValueError("a time below 0, or too long")
    return costs


COSTS: Any = table(
    dict[str, Row],
    lambda file: read_costs(file.rows, file.name),
    (lambda costs: json.dumps(costs) if costs else "", _unpacked),
    empty={},
    what="a table of costs of at least 0 s",
    made_by=", as 'testbed calibrate --costs NAME.csv' makes it",
)
