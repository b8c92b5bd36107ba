"""Deploys every scenario of geomx/ and sync/ over four machines, and compares what its nodes hold with the simulator.

``python -m tests.cluster.every_scenario`` starts a Ray cluster of real raylets, each in namespaces of its own, and runs
all of them one after the other, shortened. It takes half an hour. ``--loopback`` takes agents on loopback instead.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.cluster.raylets import Raylets, missing, raylets

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("geomx", "sync")
MACHINES = 4
ROUNDS = 6
SHORT = (f"training.rounds={ROUNDS}", f"training.evaluate_every={ROUNDS}", "training.target_accuracy=null")
# Updates in the order of arrival, blocks that may come late, or steps that are assigned by what was measured.
ASYNCHRONOUS = {
    "geomx/mixed-sync",
    "geomx/dgt",
    "geomx/best-stack",
    "geomx/esync",
    "sync/esync",
    "sync/mixedsync",
    "sync/ssp",
    "sync/tap",
}
LIMIT_S = 240.0


def scenarios() -> list[Path]:
    """The shipped scenarios of both folders."""
    return sorted(path for folder in FOLDERS for path in (ROOT / "scenarios" / folder).glob("*.yaml"))


def name_of(path: Path) -> str:
    """``geomx/dgt``"""
    return f"{path.parent.name}/{path.stem}"


def settings_of(path: Path, address: str) -> list[str]:
    """The settings that deploy a scenario: its data centres on four machines, in turn."""
    command = [sys.executable, "-m", "testbed.cli.main", "plan", str(path), "--on", "simulate", "--json"]
    plan = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    names = [site["name"] for site in plan["network"]["sites"]]
    sites = [f"{name}: {{label: machine=m{number % MACHINES + 1}}}" for number, name in enumerate(names)]
    return [*SHORT, f"cluster.address={address}", f"cluster.data_centers={{{', '.join(sites)}}}"]


def command_of(path: Path, on: str, out: Path, settings: Sequence[str]) -> list[str]:
    """The command that runs a scenario."""
    words = [word for setting in settings for word in ("--set", setting)]
    run = [sys.executable, "-m", "testbed.cli.main", "run", str(path), "--on", on]
    return [*run, "--out", str(out), "--quiet", *words]


def result_of(run: Path) -> dict[str, object]:
    """What a run has ended with; empty if it has not."""
    path = run / "result.json"
    found: dict[str, object] = json.loads(path.read_text()) if path.exists() else {}
    return found


def compare(path: Path, folder: Path, cluster: Raylets | None) -> str:
    """Simulate and deploy a scenario; return what is wrong, empty if nothing is."""
    simulated, deployed = folder / f"{path.parent.name}-{path.stem}-s", folder / f"{path.parent.name}-{path.stem}-d"
    if name_of(path) not in ASYNCHRONOUS:
        subprocess.run(command_of(path, "simulate", simulated, SHORT), check=True, capture_output=True)
    address = cluster.address if cluster else "loopback"
    command = command_of(path, "cluster", deployed, settings_of(path, address))
    if cluster is not None:
        output = cluster.head.run(command, LIMIT_S)
    else:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        output = ended.stderr
    found = result_of(deployed)
    if name_of(path) in ASYNCHRONOUS:  # how many rounds each worker has made of all, and so the end, depends on times
        return (
            "" if found.get("rounds") else f"ended with {found.get('status')}: {found.get('message')} {output[-300:]}"
        )
    expected = result_of(simulated)
    if found.get("status") not in ("done", "reduced"):
        return f"ended with {found.get('status')}: {found.get('message')} {output[-300:]}"
    if found["rounds"] != expected["rounds"]:
        return f"{found['rounds']} rounds, simulated {expected['rounds']}"
    if found["parameters_sha256"] != expected["parameters_sha256"]:
        return f"other parameters than simulated: {found['parameters_sha256']}"
    return ""


def run_all(cluster: Raylets | None, only: str) -> int:
    """Run them all; return how many are wrong."""
    wrong = 0
    with tempfile.TemporaryDirectory() as name:
        for path in (path for path in scenarios() if only in name_of(path)):
            begin_s = time.monotonic()
            problem = compare(path, Path(name), cluster)
            wrong += bool(problem)
            how = "ends well" if name_of(path) in ASYNCHRONOUS else "same bits"
            print(f"{name_of(path)}: {problem or how} ({time.monotonic() - begin_s:.0f} s)", flush=True)  # noqa: T201
    return wrong


def main() -> int:
    """Return 1 if one is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loopback", action="store_true")
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    if arguments.loopback:
        return int(run_all(None, arguments.only) > 0)
    if missing():
        raise SystemExit(missing())
    with raylets(workers=MACHINES, cores=4, labels=[f"machine=m{number + 1}" for number in range(MACHINES)]) as cluster:
        return int(run_all(cluster, arguments.only) > 0)


if __name__ == "__main__":
    sys.exit(main())
