"""The machines of the tests of clusters: really apart, and gone with the test."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cluster.raylets import ROOT, Machine, needs_raylets, raylets

# A process that starts a machine, prints the process that holds it, and waits to be killed.
STARTER = """
import time
from tests.cluster.raylets import Machine
machine = Machine(1, own_tmp=True)
machine.popen(["sleep", "1000"])
print(machine.init_pid, flush=True)
time.sleep(1000)
"""
WHERE = """
import ray, socket, sys
ray.init(address=sys.argv[1], log_to_driver=False)
place = ray.remote(lambda: socket.gethostname()).options(num_cpus=1, label_selector={"dc": "paris"})
print("ran on", ray.get(place.remote()))
"""


@needs_raylets
def test_a_machine_has_its_own_files_processes_and_network(tmp_path: Path) -> None:
    machine = Machine(1, own_tmp=True)
    try:
        assert machine.run(["sh", "-c", "touch /tmp/here; ls /tmp"]).split() == ["here"]
        assert machine.disk() == {"here"} and not Path("/tmp/here").exists()
        assert machine.run(["sh", "-c", "ls /sys/class/net >/dev/null; ip -o link | wc -l"]).strip() == "1"
        assert machine.run(["hostname"]).strip() == "machine1"
        sleep = machine.popen(["sleep", "1000"])
        while "sleep 1000" not in machine.processes().values():
            time.sleep(0.01)
    finally:
        machine.kill()
    assert sleep.wait(10) != 0
    assert not Path(f"/proc/{machine.init_pid}").exists() and not machine.alive()


@needs_raylets
def test_a_machine_ends_with_the_process_that_started_it() -> None:
    starter = subprocess.Popen([sys.executable, "-c", STARTER], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert starter.stdout is not None
    init = Path(f"/proc/{int(starter.stdout.readline())}")
    assert init.exists()
    starter.kill()
    starter.wait()
    deadline_s = time.monotonic() + 10
    while init.exists():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


@needs_raylets
@pytest.mark.slow  # 25 s
def test_tasks_are_placed_by_label() -> None:
    with raylets(workers=2, labels=["dc=tokyo", "dc=paris"]) as cluster:
        assert "ran on machine2" in cluster.head.run([sys.executable, "-c", WHERE, cluster.address])
        inits = [Path(f"/proc/{machine.init_pid}") for machine in (cluster.head, cluster.switch, *cluster.workers)]
        assert all(init.exists() for init in inits)
    assert not any(init.exists() for init in inits)
