"""The benchmark of the transport, on one small size."""

from __future__ import annotations

import json

import pytest

from analysis.benchmarks.__main__ import main


@pytest.mark.slow  # 15 s
def test_codes_and_gloo_are_measured_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--size-bytes", "400000", "--workers", "2", "--repeats", "3", "--turns", "1", "--json"]
    assert main(["transport", *sizes, "--code", "aes-gmac,gloo", "--keys", "2"]) == 0
    ours, gloo = (json.loads(line) for line in capsys.readouterr().out.splitlines()[-2:])
    assert (ours["code"], gloo["code"]) == ("aes-gmac", "gloo")
    for row in (ours, gloo):
        assert row["throughput_bytes_per_s"] == pytest.approx(2 * 2 * 400_000 / row["time_s"])
    assert gloo["times_the_first"] == pytest.approx(ours["time_s"] / gloo["time_s"])
