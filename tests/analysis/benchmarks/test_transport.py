"""The benchmark of the transport, on one small size."""

from __future__ import annotations

from pathlib import Path

from analysis.benchmarks.transport_peers import Job, measure_socket


def test_a_bare_server_is_measured(tmp_path: Path) -> None:
    found = measure_socket(Job(2, 40_000, 1, 3, tmp_path))
    assert len(found["times_s"]) == 3
    assert found["server_cpu_s_per_gb"] >= 0
