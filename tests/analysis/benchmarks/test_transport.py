"""The benchmark of the transport, on one small size."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analysis.benchmarks.__main__ import main
from analysis.benchmarks.transport_peers import Job, measure_socket


@pytest.mark.slow  # 15 s
def test_codes_and_peers_are_measured_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--size-bytes", "400000", "--workers", "2", "--repeats", "3", "--turns", "1", "--json"]
    assert main(["transport", *sizes, "--code", "aes-gmac,gloo", "--keys", "2"]) == 0
    ours, gloo = (json.loads(line) for line in capsys.readouterr().out.splitlines()[-2:])
    assert (ours["code"], gloo["code"]) == ("aes-gmac", "gloo")
    assert 0 <= ours["server_cpu_s_per_gb"] < 100
    for row in (ours, gloo):
        assert row["throughput_bytes_per_s"] == pytest.approx(2 * 2 * 400_000 / row["time_s"])
    assert gloo["times_the_first"] == pytest.approx(ours["time_s"] / gloo["time_s"])


def test_a_bare_server_is_measured(tmp_path: Path) -> None:
    found = measure_socket(Job(2, 40_000, 1, 3, tmp_path))
    assert len(found["times_s"]) == 3
    assert found["server_cpu_s_per_gb"] >= 0
