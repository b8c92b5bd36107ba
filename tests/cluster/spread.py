"""What spreading an emulated network over machines changes: rounds on 1, 2 and 4 of them, and without agents.

``python -m tests.cluster.spread --machines 1,2,4 --repeats 3``. The machines are namespaces of this one (as in the
tests), and share its cores, so that the same processors do the same work in all. ``--sites 50 --machines 4 --repeats 1
--alone 0`` emulates fifty data centres. Each line: the median round after the first, and what the run has warned of.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from emulation.sandbox import Sandbox
from testbed.environment import host_environment
from testbed.execution import session
from testbed.plan.build import build_plan
from testbed.plan.model import to_json
from testbed.results.events import read
from testbed.scenario.load import load

_LIMIT_S = 600.0


def scenario(sites: int) -> str:
    """Return a hub and its spokes: rates and delays differ, and every data centre has a server and workers."""
    few = sites <= 8
    names = [f"dc{number}" for number in range(sites)]
    workers, rate = (2, 20) if few else (1, 4)
    centers = [f"    - {{name: {name}, workers: {workers}{', central: true' * (name == 'dc0')}}}" for name in names]
    links = [
        f"    - {{between: [dc0, {name}], rate: {rate} Mbit/s, delay: {10 + 50 * number // sites} ms}}"
        for number, name in enumerate(names[1:], 1)
    ]
    job = "model: cnn, rounds: 30" if few else "model: {kind: mlp, hidden: 8}, rounds: 10"
    step = 500 if few else 2000
    return "\n".join([
        "version: 1", "name: spread", "seed: 1", "topology:", "  data_centers:", *centers, "  links:", *links,
        f"training: {{{job}, data: digits, batch: 32, evaluate_every: 10}}", f"device: {{step_time: {step} ms}}",
        "optimizer: {kind: adam, learning_rate: 0.002, at: global}", "",
    ])  # fmt: skip


def on_machines(file: str, directory: str, count: int) -> None:
    """Run in a sandbox, on so many machines; write the reported progress."""
    from tests.cluster.emulated_cases import ran

    result = ran(directory, ["training.target_accuracy=null"], count, scenario=file)
    Path(directory, "told.json").write_text(json.dumps(result))


def once(file: Path, directory: Path, machines: int) -> str:
    """Run the scenario on machines, or, with 0, without agents. Return a line about it."""
    begin_s = time.monotonic()
    if machines:
        code = "import sys; from tests.cluster.spread import on_machines; on_machines(*sys.argv[1:3], int(sys.argv[3]))"
        words = [sys.executable, "-c", code, str(file), str(directory), str(machines)]
        with Sandbox(words, env=host_environment()) as sandbox:
            sandbox.wait(_LIMIT_S)
        told = json.loads((directory / "told.json").read_text())
        error, lines = told["error"], told["told"]
    else:
        plan = build_plan(load(file, ["training.target_accuracy=null"]), "emulate")
        (directory / "plan.json").write_bytes(to_json(plan))
        lines = []
        error = session.run(plan, directory, lines.append).message
    events = list(read(directory / "events"))
    rounds = [event["t"] for event in events if event["kind"] == "round" and event["node"] == "dc0/worker0"]
    lengths = [after - before for before, after in pairwise(rounds)]
    if not lengths:
        return f"{machines or 'no'} machines: no rounds: {error}"
    off = [event for event in events if event["kind"] == "measured" and not event["ok"]]
    warned = {event["message"] for event in events if event["kind"] == "warning"}
    evaluated = {f"{sum(event['kind'] == 'evaluate' for event in events)} evaluations"}
    return (
        f"{machines or 'no'} machines: median round {statistics.median(lengths) * 1e3:.1f} ms of {len(rounds)}, "
        f"{sum(event['kind'] == 'measured' for event in events)} values measured, {len(off)} outside, "
        f"{time.monotonic() - begin_s:.0f} s; {error or 'ended well'}; {'; '.join(sorted(warned | evaluated))}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machines", default="1,2,4")
    parser.add_argument("--sites", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--alone", type=int, default=1, help="whether to run without agents, too")
    arguments = parser.parse_args()
    counts = [*([0] if arguments.alone else []), *map(int, arguments.machines.split(","))]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "spread.yaml")
        file.write_text(scenario(arguments.sites))
        for number in range(arguments.repeats):
            for count in counts:
                directory = Path(folder, f"{number}-{count}")
                directory.mkdir()
                print(once(file, directory, count), flush=True)


if __name__ == "__main__":
    main()
