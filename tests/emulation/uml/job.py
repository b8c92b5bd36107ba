"""Inside the user-mode kernel: the link tests' cases with netem, as lines of JSON."""

import json
from typing import Any

from emulation.probe import probe
from tests.emulation.inside import run

CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("lossy", {"loss": 0.05, "packets": 5000}),
    ("bursts", {"burst": 5.0}),
    ("reordered", {"share": 0.1}),
    ("outage", {}),
    ("slow_lan", {"delay_s": 0.003, "rates": False}),
    ("duplicated", {"share": 0.1}),
    ("corrupted", {"share": 0.1}),
    ("live_change", {}),
)

print(json.dumps({"case": "probe", "result": probe().to_dict()}), flush=True)  # noqa: T201
for name, arguments in CASES:
    try:
        result = run(name, **arguments)
    except Exception as error:
        result = {"error": str(error)}
    print(json.dumps({"case": name, "result": result}), flush=True)  # noqa: T201
