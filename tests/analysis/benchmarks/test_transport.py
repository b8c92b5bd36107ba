"""The benchmark of the transport, on one small size."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analysis.benchmarks.__main__ import main
from analysis.benchmarks.transport_peers import Job, measure_command, measure_mpich, measure_ring, measure_socket, mpich


@pytest.mark.slow  # 15 s
def test_codes_and_peers_are_measured_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--size-bytes", "400000", "--workers", "2", "--repeats", "3", "--turns", "1", "--json"]
    assert main(["transport", *sizes, "--code", "aes-gmac,gloo,ps-lite", "--keys", "2"]) == 0
    ours, gloo = (json.loads(line) for line in capsys.readouterr().out.splitlines()[-2:])
    assert (ours["code"], gloo["code"]) == ("aes-gmac", "gloo"), "ps-lite is left out without a command"
    assert 0 <= ours["server_cpu_s_per_gb"] < 100
    for row in (ours, gloo):
        assert row["throughput_bytes_per_s"] == pytest.approx(2 * 2 * 400_000 / row["time_s"])
    assert gloo["times_the_first"] == pytest.approx(ours["time_s"] / gloo["time_s"])


def test_a_bare_server_and_a_users_command_are_measured(tmp_path: Path) -> None:
    job = Job(2, 40_000, 1, 3, tmp_path)
    found = measure_socket(job)
    assert len(found["times_s"]) == 3
    assert found["server_cpu_s_per_gb"] >= 0
    command = "sh -c 'echo 0.5; echo 0.25; echo $PUSH_WORKERS'"
    assert measure_command(command, job) == {"times_s": [0.5, 0.25, 2.0]}
    with pytest.raises(RuntimeError, match="printed no seconds"):
        measure_command("true", job)


@pytest.mark.slow  # 5 s
def test_the_ring_of_real_nodes_is_measured(tmp_path: Path) -> None:
    found = measure_ring("aes-gmac:tcp", Job(2, 40_000, 2, 3, tmp_path))
    assert len(found["times_s"]) == 3
    assert found["worker_cpu_s_per_gb"] > 0


@pytest.mark.slow  # 4 s
@pytest.mark.skipif(mpich() is None, reason="there is no mpiexec")
def test_mpich_is_measured(tmp_path: Path) -> None:
    assert len(measure_mpich(Job(2, 40_000, 2, 3, tmp_path))["times_s"]) == 3
