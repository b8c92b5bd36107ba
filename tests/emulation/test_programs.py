"""Unmodified programs on emulated hosts: who they are, whom they reach, and what their links carry."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from testbed.results.summary import by_site
from tests.cli.forked import command
from tests.emulation.inside import ROOT
from tests.end_to_end.runs import Finished, read_events, run_scenario

pytestmark = pytest.mark.emulation

PROGRAMS = ROOT / "scenarios" / "programs"
_CLONE_NEWUSER = 0x10000000
NOBODY = 65534
TWO = """
version: 1
name: two
seed: 1
topology:
  data_centers: [{name: a, central: true, workers: 1}, {name: b, workers: 1}]
  links: [{between: [a, b], rate: 20 Mbit/s, delay: 20 ms}]
"""


def run(folder: Path, workload: dict[str, Any], more: str = "") -> Finished:
    folder.mkdir(exist_ok=True)
    (folder / "two.yaml").write_text(f"{TWO}{more}\nworkload: {json.dumps(workload)}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done = run_scenario(folder / "run", "emulate", scenario=folder / "two.yaml")
    logs = {path.stem: path.read_text() for path in (folder / "run" / "logs").glob("*.log")}
    assert done.outcome.status == "done", (done.outcome, logs)
    return done


def log(done: Finished, node: str) -> str:
    return (done.directory / "logs" / f"{node}.log").read_text()


def sent_bytes(done: Finished) -> dict[str, int]:
    """What every link has carried by its last sample."""
    return {event["link"]: event["bytes"] for event in done.of_kind("link")}


@pytest.mark.slow  # 8 s
def test_a_pair_of_programs_is_measured_on_hosts_with_names(tmp_path: Path) -> None:
    """iperf3 behind the configured link; names, interfaces and ssh of the hosts; a trace from the program's start."""
    client = (
        "hostname; ls /sys/class/net; echo $MASTER_ADDR $TESTBED_HOSTS; ssh -x -o A=b worker0.a hostname '&&' pwd; "
        "ssh nowhere true; exec iperf3 -c worker0.a -t 2 -J --logfile iperf.json"
    )
    done = run(
        tmp_path,
        {"first": "iperf3 -s", "command": ["sh", "-c", client], "listens": 5201, "ends": "others"},
        "faults: [{kind: rate, link: b>a, rate: 10 Mbit/s, at: 0 s}]",
    )
    words = log(done, "b.worker0").split("\n")
    assert words[0] == "worker0.b" and {"eth0", "lo"} <= set(words[1:4])
    assert words[3:6] == ["10.1.0.1 worker0.a,worker0.b", "worker0.a", str(tmp_path)]
    assert "ssh: no host 'nowhere' in this network; hosts: worker0.a, worker0.b" in words[6]
    sent = json.loads((tmp_path / "iperf.json").read_text())["end"]["sum_sent"]["bytes"]
    carried = sent_bytes(done)["b>a"]
    assert sent * 0.7 < carried < sent * 1.08, "the counters are those of the program's link"
    assert 2.0e6 < carried < 3.6e6, "the fault halved the rate when the program started"
    received = max(event["received_bytes"] for event in done.of_kind("interface") if event["node"] == "a/worker0")
    assert sent * 0.9 < received < sent * 1.08
    assert {event["node"] for event in done.of_kind("final")} == {"a/worker0", "b/worker0"}
    assert by_site(sent_bytes(done), ["a", "b"])["a"]["down"] == carried


def leave_root() -> None:
    """Make this process that of an ordinary user: one without rights outside a user namespace of its own.

    Whoever runs the tests, and wherever the interpreter is: files are accessed as before.
    """
    user, group = os.geteuid(), os.getegid()
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWUSER):
        raise OSError(ctypes.get_errno(), "no user namespaces")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{NOBODY} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{NOBODY} {group} 1")


@pytest.mark.slow  # 6 s
def test_without_root_programs_run_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are root in the sandbox, with names, addresses, ssh and measured links, and an ordinary user outside."""
    if subprocess.run(["unshare", "--map-root-user", "true"], check=False, capture_output=True).returncode:
        pytest.skip("this kernel lets no ordinary user make namespaces")
    traffic = "iperf3 -c worker0.a -n 500K -J --logfile iperf.json"
    about = f"id -u; tr -s ' ' </proc/self/uid_map; ssh worker0.a hostname; exec {traffic}"
    workload = {"first": "iperf3 -s", "command": ["sh", "-c", about], "listens": 5201, "ends": "others"}
    (tmp_path / "two.yaml").write_text(f"{TWO}\nworkload: {json.dumps(workload)}\n")
    monkeypatch.chdir(tmp_path)
    ended = command(["run", "two.yaml", "--on", "emulate", "--quiet", "--out", "run"], prepare=leave_root)
    assert ended.returncode == 0, ended.stderr
    words = (tmp_path / "run" / "logs" / "b.worker0.log").read_text().split("\n")
    assert words[:3] == ["0", f" 0 {NOBODY} 1", "worker0.a"]
    carried = {event["link"]: event["bytes"] for event in read_events(tmp_path / "run") if event["kind"] == "link"}
    end = json.loads((tmp_path / "iperf.json").read_text())["end"]
    # iperf3 counts as sent what it hands to the kernel, and closes the connection before all of it has left.
    assert 100_000 < end["sum_received"]["bytes"] < carried["b>a"] < 1.08 * end["sum_sent"]["bytes"]
    assert carried["b>a"] > 10 * carried["a>b"]


@pytest.mark.slow  # 31 s
def test_the_bytes_of_ddp_are_those_of_its_arithmetic(tmp_path: Path) -> None:
    """A step sends the gradients once (half of them summed, half of the sums); the start, the parameters once."""
    hidden, steps = 512, 7
    program = f"python {PROGRAMS}/train_ddp.py --hidden {hidden} --epochs 1 --batch 96"
    done = run(tmp_path, {"command": program, "metrics": "stdout"})
    values = 64 * hidden + hidden + hidden * hidden + hidden + hidden * 10 + 10
    assert {event["round"] for event in done.of_kind("round")} == set(range(steps))
    up, down = 4 * values * (steps + 1), 4 * values * steps
    for link, payload, other in (("a>b", up, down), ("b>a", down, up)):
        frames, acknowledgements = payload * 1514 / 1448, other / 1448 / 2 * 66
        assert sent_bytes(done)[link] == pytest.approx(frames + acknowledgements, rel=0.02)


@pytest.mark.slow  # 10 s
def test_mpirun_starts_its_processes_on_other_hosts(tmp_path: Path) -> None:
    program = f"mpirun -n {{world_size}} python {PROGRAMS}/all_reduce_mpi.py"
    done = run(tmp_path, {"first": program})
    assert {"rank 0 of 2 on worker0.a", "rank 1 of 2 on worker0.b"} <= set(log(done, "a.worker0").split("\n"))
    assert all(carried > 5 * 1_000_000 for carried in sent_bytes(done).values()), "not past the links"


THREE = ("virginia/worker0", "frankfurt/worker0", "tokyo/worker0")
PARAMETERS_BYTES = 4 * (65 * 256 + 257 * 256 + 257 * 10)  # of the programs of torchft and hivemind
needs_torchft = pytest.mark.skipif(importlib.util.find_spec("torchft") is None, reason="pip install '.[torchft]'")
needs_hivemind = pytest.mark.skipif(importlib.util.find_spec("hivemind") is None, reason="pip install '.[hivemind]'")


def run_shipped(folder: Path, name: str, *overrides: str) -> Finished:
    done = run_scenario(folder / "run", "emulate", *overrides, scenario=PROGRAMS / f"{name}.yaml")
    assert done.outcome.status == "done", (done.outcome, log(done, "virginia.worker0"))
    return done


def rounds_by_node(done: Finished) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for event in done.of_kind("round"):
        found.setdefault(event["node"], []).append(event["round"])
    return found


@needs_torchft
@pytest.mark.slow  # 2 min of a busy machine
def test_replica_groups_of_torchft_train_by_diloco(tmp_path: Path) -> None:
    """Around a ring of three, each rank sends 4 / 3 of the parameters; each direction of a link is on one way."""
    done = run_shipped(tmp_path, "torchft", "workload.env.SYNCHRONISATIONS=4")
    assert rounds_by_node(done) == {node: [0, 1, 2, 3] for node in THREE}
    payload = 4 * PARAMETERS_BYTES * 4 / 3
    assert all(payload < carried < 1.3 * payload for carried in sent_bytes(done).values()), sent_bytes(done)
    assert max(event["accuracy"] for event in done.of_kind("evaluate")) > 0.8


@needs_torchft
@pytest.mark.slow  # 3 min of a busy machine
def test_a_replica_group_of_torchft_that_was_killed_takes_up_the_others_state(tmp_path: Path) -> None:
    """The lighthouse asks for all three, so that the others wait for it, however long a start takes on this machine."""
    fault = "faults=[{kind: kill, node: tokyo/worker0, round: 2, for: 1 s}]"
    patience = ("workload.env.TORCHFT_QUORUM_TIMEOUT_SEC=900", "workload.env.SYNCHRONISATIONS=6")
    done = run_shipped(tmp_path, "torchft", fault, *patience)
    by_node = rounds_by_node(done)
    assert all(rounds[-1] == 5 for rounds in by_node.values()), by_node
    assert log(done, "tokyo.worker0").count("synchronisation 0: 3 replica groups") == 2, "it began twice"
    assert by_node["tokyo/worker0"].count(0) == 1, "its second life goes on where the others are"


@needs_hivemind
@pytest.mark.slow  # 2 min of a busy machine
def test_peers_of_hivemind_average_their_models(tmp_path: Path) -> None:
    """A peer that averages the share x sends 1 - x to the others, and 2 x back to them: 1 + x, and gets as much."""
    done = run_shipped(tmp_path, "hivemind", "workload.env.AVERAGES=4")
    assert rounds_by_node(done) == {node: [0, 1, 2, 3] for node in THREE}
    assert "average 3: 3 peers" in log(done, "tokyo.worker0")
    parameters = 4 * PARAMETERS_BYTES
    assert all(parameters < carried < 2.5 * parameters for carried in sent_bytes(done).values()), sent_bytes(done)
    assert max(event["accuracy"] for event in done.of_kind("evaluate")) > 0.8
