"""Inside the guest: the link tests' cases by netem and by NFQUEUE, as lines of JSON."""

from __future__ import annotations

import json
import os
from typing import Any

from emulation.probe import probe
from tests.emulation.inside import run

CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("lossy", {"loss": 0.05, "packets": 5000}),
    ("bursts", {"burst": 5.0}),
    ("reordered", {"share": 0.1}),
    ("jittered", {}),
    ("outage", {}),
    ("slow_lan", {"delay_s": 0.003}),
    ("corrupted", {"share": 0.1}),
    ("live_change", {}),
    ("goodput", {"jitter_s": 0.005}),
    ("lost_numbers", {"burst": 1.0}),
    ("read_back", {}),
)
OF_NETEM: tuple[tuple[str, dict[str, Any]], ...] = (("duplicated", {"share": 0.1}),)


def tell(method: str, case: str, result: Any) -> None:
    print(json.dumps({"method": method, "case": case, "result": result}), flush=True)  # noqa: T201


tell("netem", "probe", probe().to_dict())
for method in ("netem", "nfqueue"):
    os.environ["TESTBED_WITHOUT_NETEM"] = "" if method == "netem" else "yes"
    tell(method, "ordered", run("reordered", share=0.0, jitter_s=0.005))
    tell(method, "lost in bursts", run("lost_numbers", burst=4.0))
    for name, arguments in CASES + (OF_NETEM if method == "netem" else ()):
        try:
            result = run(name, **arguments)
        except Exception as error:
            result = {"error": str(error)}
        tell(method, name, result)
