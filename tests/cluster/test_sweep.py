"""Sweeps on real raylets: the same table as on one machine, whatever dies; and nothing is left on any machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.raylets import ROOT, Machine, Raylets, needs_raylets, raylets
from tests.cluster.sweeping import CODE, MINE, POINTS, SMALL, begin, done, end, left_on, places, sweep, wait_until

pytestmark = [needs_raylets, pytest.mark.slow, pytest.mark.timeout(600)]  # 30 to 60 s each


@pytest.fixture(scope="module")
def cluster() -> Iterator[Raylets]:
    with raylets(workers=3) as running:
        yield running


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sweep") / "small.yaml"
    path.write_text(SMALL)
    return path


@pytest.fixture(scope="module")
def table(scenario: Path) -> bytes:
    """The table of the sweep on this machine."""
    out = scenario.parent / "here"
    subprocess.run(sweep(scenario, out), check=True, capture_output=True, cwd=ROOT)
    return (out / "sweep.csv").read_bytes()


def test_a_cluster_makes_the_table_of_one_machine(
    cluster: Raylets, scenario: Path, table: bytes, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    end(begin(cluster, sweep(scenario, out)))
    assert (out / "sweep.csv").read_bytes() == table
    assert set(places(out).values()) == {machine.address for machine in cluster.workers}
    about = json.loads(next(out.glob("runs/*/manifest.json")).read_text())
    assert about["argv"][-2:] == ["--cluster", cluster.address] and about["testbed"]["git_commit"]
    before = done(out)
    assert "12 of 12 runs done" in end(begin(cluster, sweep(scenario, out)))
    assert done(out) == before
    wait_until(lambda: not any(left_on(machine) for machine in cluster.workers), 30)


def test_a_driver_is_killed_and_the_next_goes_on(
    cluster: Raylets, scenario: Path, table: bytes, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    for finished in (2, 5):
        process = begin(cluster, sweep(scenario, out))
        wait_until(lambda finished=finished: len(done(out)) >= finished)  # type: ignore[misc]
        process.send_signal(signal.SIGKILL)
        _kill_drivers(cluster)
        process.wait()
        wait_until(lambda: not any(left_on(machine) for machine in cluster.workers), 60)
    before = done(out)
    assert 5 <= len(before) < POINTS
    end(begin(cluster, sweep(scenario, out)))
    assert (out / "sweep.csv").read_bytes() == table
    after = done(out)
    assert {name: after[name] for name in before} == before


def _kill_drivers(cluster: Raylets) -> None:
    """``nsenter`` has forked the command: kill this, too."""
    for pid, text in cluster.head.processes().items():
        if "testbed.cli.main" in text:
            os.kill(pid, signal.SIGKILL)


def test_machines_come_and_go(scenario: Path, table: bytes, tmp_path: Path) -> None:
    out, said = tmp_path / "out", tmp_path / "said.txt"
    with raylets(workers=3) as cluster, said.open("w") as output:
        process = begin(cluster, sweep(scenario, out), output)
        wait_until(lambda: len(done(out)) >= 2)
        cluster.workers[0].kill()
        _send_to_points(cluster.workers[1:3], signal.SIGSTOP)  # else all points are done before Ray knows of any change
        before = done(out)
        added = cluster.add()
        wait_until(lambda: added.address in places(out).values())
        wait_until(lambda: f"machine {cluster.workers[0].address} has left the cluster" in said.read_text())
        wait_until(lambda: f"machine {added.address} has joined the cluster" in said.read_text())
        _send_to_points(cluster.workers[1:3], signal.SIGCONT)
        end(process)
        after = done(out)
        assert (out / "sweep.csv").read_bytes() == table
        assert {name: after[name] for name in before} == before
        assert len(after) == POINTS and added.address in places(out).values()
        wait_until(lambda: not any(left_on(machine) for machine in cluster.workers if machine.alive()), 30)


def _send_to_points(machines: list[Machine], number: signal.Signals) -> None:
    for machine in machines:
        for pid, text in machine.processes().items():
            if "testbed.execution.host" in text:
                os.kill(pid, number)


def test_workers_of_ray_are_killed(cluster: Raylets, scenario: Path, table: bytes, tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = begin(cluster, sweep(scenario, out))
    for finished in (1, 4):
        wait_until(lambda finished=finished: len(done(out)) >= finished)  # type: ignore[misc]
        for pid, text in cluster.workers[0].processes().items():
            if text.startswith("ray::testbed-"):
                os.kill(pid, signal.SIGKILL)
    end(process)
    assert (out / "sweep.csv").read_bytes() == table
    wait_until(lambda: not any(left_on(machine) for machine in cluster.workers), 30)


# Where the testbed is, found without the working directory.
WHERE = "import sys; sys.path.remove(''); import testbed; print(testbed.__path__[0].rpartition('/')[0])"


def test_files_and_code_go_to_machines_that_have_none(tmp_path: Path) -> None:
    """One machine with another testbed; the user's code and data are on the head's disk alone."""
    (tmp_path / "mine.py").write_text(CODE)
    (tmp_path / "mine.txt").write_text("to be or not to be, that is the question " * 40)
    model, data = "{kind: transformer, layers: 1, heads: 1}", f"{{kind: text, file: {tmp_path}/mine.txt, context: 8}}"
    scenario = tmp_path / "own.yaml"
    own = SMALL.replace("model: {kind: mlp, hidden: 8}, data: digits", f"model: {model}, data: {data}")
    scenario.write_text(own + MINE)
    words = [*sweep(scenario, tmp_path / "here")[:7], "--seeds", "2", "--allow-code"]
    subprocess.run(words, check=True, capture_output=True, cwd=ROOT)
    with raylets(workers=0) as cluster:
        machine = cluster.add(env={"PYTHONPATH": ""})
        installed = machine.run([sys.executable, "-c", WHERE], env={"PYTHONPATH": ""}).strip()
        for package in ("testbed", "emulation", "topologies", "analysis", "scenarios"):
            for root in {str(ROOT), installed}:
                machine.run(["mount", "-t", "tmpfs", "tmpfs", f"{root}/{package}"])
                machine.run(
                    ["sh", "-c", f"echo 'raise ImportError(\"of this machine\")' > {root}/{package}/__init__.py"]
                )
        with pytest.raises(AssertionError, match="ImportError: of this machine"):
            machine.run([sys.executable, "-c", "import testbed.plan"])
        words[words.index(str(tmp_path / "here"))] = str(tmp_path / "there")
        end(begin(cluster, words))
        assert set(places(tmp_path / "there").values()) == {machine.address}
        assert not [path for path in machine.disk() if "mine" in path]
    assert (tmp_path / "there" / "sweep.csv").read_bytes() == (tmp_path / "here" / "sweep.csv").read_bytes()


def test_a_machine_with_other_packages_ends_the_sweep(scenario: Path, tmp_path: Path) -> None:
    with raylets(workers=0) as cluster:
        other = cluster.add(env={"PYTHONPATH": f"/tmp/old:{ROOT}"})
        package = "/tmp/old/simpy-1.0.dist-info"
        other.run(["sh", "-c", f"mkdir -p {package}; printf 'Name: simpy\\nVersion: 1.0\\n' > {package}/METADATA"])
        process = begin(cluster, sweep(scenario, tmp_path / "out"))
        text, _ = process.communicate(timeout=240)
    assert process.returncode and f"machine {other.address} has simpy 1.0 instead of" in text
