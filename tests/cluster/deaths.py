"""Kill the command, a raylet, a worker of Ray or the process of points at random moments of a sweep on a cluster.

``python -m tests.cluster.deaths --moments 20``: nothing may be left on a machine whose raylet or command was killed. A
killed command is given again, a killed machine replaced. At the end the table must be that of one machine.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.cluster.raylets import ROOT, Machine, Raylets, raylets
from tests.cluster.sweeping import SMALL, begin, done, left_on, sweep, wait_until

SEEDS = 20
VICTIMS = {
    "command": "testbed.cli.main",
    "raylet": "raylet/raylet ",
    "worker": "ray::testbed-",
}


def strike(cluster: Raylets, victim: str, draw: random.Random) -> Machine | None:
    """Kill one process of that kind; return the machine that it was on, if there was one."""
    machines = [cluster.head] if victim == "command" else [each for each in cluster.workers if each.alive()]
    draw.shuffle(machines)
    for machine in machines:
        found = [pid for pid, text in machine.processes().items() if VICTIMS[victim] in text]
        if found:
            with suppress(ProcessLookupError):
                os.kill(draw.choice(found), signal.SIGKILL)
                return machine
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moments", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    draw, struck = random.Random(arguments.seed), Counter[str]()
    with tempfile.TemporaryDirectory() as folder, raylets(workers=3) as cluster:
        scenario, out = Path(folder) / "small.yaml", Path(folder) / "out"
        scenario.write_text(SMALL)
        command = [*sweep(scenario, out), "--seeds", str(SEEDS)]
        process, finished = begin(cluster, command), dict[str, int]()
        while sum(struck.values()) < arguments.moments and len(done(out)) < 4 * SEEDS:
            _wait_for_more(out, finished, process)
            time.sleep(draw.uniform(0, 3))
            victim = draw.choice(list(VICTIMS))
            machine = strike(cluster, victim, draw)
            if machine is None:
                continue
            struck[victim] += 1
            finished = _kept(finished, done(out))
            print(f"{sum(struck.values())}: {victim} on {machine.address}, {len(finished)} points done", flush=True)
            if victim == "command":
                process.wait(30)
                alive = [each for each in cluster.workers if each.alive()]
                _nothing_left(alive)
                process = begin(cluster, command)
            elif victim == "raylet":
                _nothing_left([machine])
                machine.kill()
                cluster.add()
        assert process.wait(600) == 0, "the sweep failed"
        _kept(finished, done(out))
        _nothing_left([each for each in cluster.workers if each.alive()])
        here = Path(folder) / "here"
        subprocess.run([*sweep(scenario, here), "--seeds", str(SEEDS)], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
        assert (out / "sweep.csv").read_bytes() == (here / "sweep.csv").read_bytes(), (
            "another table than on one machine"
        )
    print(f"killed {dict(struck)}; nothing was left, no finished point was run again, and the table is the same")


def _nothing_left(machines: Sequence[Machine]) -> None:
    """Wait until there are no processes and files of sweeps on these machines. Raise if some stay for a minute."""
    try:
        wait_until(lambda: not any(map(left_on, machines)), 60)
    except AssertionError:
        raise AssertionError({machine.address: left_on(machine) for machine in machines}) from None


def _wait_for_more(out: Path, finished: dict[str, int], process: subprocess.Popen[str]) -> None:
    """The next blow should fall while points run."""
    wait_until(lambda: len(done(out)) > len(finished) or process.poll() is not None, 300)


def _kept(before: dict[str, int], now: dict[str, int]) -> dict[str, int]:
    assert {name: now.get(name) for name in before} == before, "a finished point was run again"
    return now


if __name__ == "__main__":
    main()
