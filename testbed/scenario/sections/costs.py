"""A table of measured costs, from a CSV file beside the scenario."""

from __future__ import annotations

import json
from typing import Any

from testbed.costs import Row, read_costs
from testbed.scenario.reading.tables import table


def _unpacked(text: str) -> dict[str, Row]:
    return {name: Row(*seconds) for name, seconds in json.loads(text or "{}").items()}


COSTS: Any = table(
    dict[str, Row],
    lambda file: read_costs(file.rows, file.name),
    (lambda costs: json.dumps(costs) if costs else "", _unpacked),
    empty={},
    what="a table of costs",
    made_by=", as 'testbed calibrate --costs NAME.csv' makes it",
)
