"""Benchmarks of the emulation: their arithmetic, and short runs of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.benchmarks.links import row
from analysis.benchmarks.streams import PUBLISHED_BPS, SCALE, law_bps
from analysis.benchmarks.topologies import scaled_plan
from analysis.benchmarks.trace_replay import TRACE, Integral, rotated, score, series_of
from testbed.plan.model import Series
from tests.emulation.inside import ROOT
from topologies.library import BUILT_IN


def test_the_integral_of_a_repeated_series() -> None:
    integral = Integral(Series(times_s=(0.0, 1.0, 3.0), values=(10.0, 20.0, 5.0), period_s=4.0))
    assert [integral.until(at) for at in (0, 0.5, 1, 2, 3, 4, 5, 8.5)] == [0, 5, 10, 30, 50, 55, 65, 115]
    assert Integral(Series(times_s=(0.0, 1.0), values=(10.0, 20.0))).until(3.0) == 50


def test_scores_tell_followers_from_others() -> None:
    planned = [float(value) for value in (1, 5, 2, 8, 3, 9)]
    perfect = score([(value, value) for value in planned])
    assert perfect == (pytest.approx(1.0), 0)
    assert score([(value, 1.1 * value) for value in planned])[1] == pytest.approx(0.1)
    correlation, error = score(list(zip(planned, [*planned[1:], planned[0]], strict=True)))
    assert correlation < 0 and error > 0.5


def test_a_series_of_a_trace_has_its_step_and_mean() -> None:
    series = series_of(TRACE)
    assert series.times_s[:3] == (0.0, 0.1, 0.2) and series.period_s == pytest.approx(len(series.values) * 0.1)
    assert sum(series.values) / len(series.values) == pytest.approx(6e6)
    assert rotated(series, 7).values[0] == series.values[7]


def test_the_window_law_is_the_published_one() -> None:
    for streams, rate_bps in PUBLISHED_BPS.items():
        assert law_bps(streams) == pytest.approx(rate_bps / SCALE, rel=0.32)  # at 40 streams it saturates in between
    assert law_bps(1) == pytest.approx(210e6 / SCALE, rel=0.001)


def test_a_row_knows_its_tolerance() -> None:
    assert row("rate", "x", 1.0, 1.019, 0.019, 0.02, "")["ok"]
    assert not row("rate", "x", 1.0, 0.97, -0.03, 0.02, "")["ok"]


def command(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "analysis.benchmarks", *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(argv, capture_output=True, text=True, timeout=200, check=False, cwd=cwd, env=environment)


@pytest.mark.flaky(reruns=2)  # measures rates, which other processes disturb
@pytest.mark.emulation
@pytest.mark.slow  # 25 s
def test_twelve_links_follow_a_trace() -> None:
    """The command without ``--seconds`` does it for ten minutes."""
    done = command("trace_replay", "--seconds", "20", "--json")
    result = json.loads(done.stdout)
    assert result["links"] == 12 and result["changes"] >= 12 * 200
    assert result["worst_correlation"] >= 0.98 and result["error"] <= 0.03, result
    assert result["late_p50_s"] < 0.02, result  # p99 is the command's to judge: it says the machine's load


@pytest.mark.slow  # 13 s
@pytest.mark.flaky(reruns=2)  # measures rates, which other processes disturb
@pytest.mark.emulation
def test_the_contract_prints_rows_and_fails_outside(tmp_path: Path) -> None:
    arguments = [
        "links",
        "--links",
        "1",
        "--rates",
        "5",
        "--rtts",
        "20",
        "--losses",
        "0.05",
        "--packets",
        "20000",
        "--json",
    ]
    done = command(*arguments, "--congestion-control", "cubic", cwd=tmp_path)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["what"] for row in rows] == ["rate", "rtt p50", "rtt p99", "loss"]
    assert all(abs(row["error"]) <= 2 * row["tolerance"] for row in rows), rows  # a busy machine may miss it by a bit


@pytest.mark.flaky(reruns=2)  # measures rates, which other processes disturb
@pytest.mark.emulation
@pytest.mark.slow  # 60 s
def test_the_streams_figure(tmp_path: Path) -> None:
    done = command(
        "streams", "--seconds", "6", "--plot", str(tmp_path / "streams.png"), "--csv", str(tmp_path / "streams.csv")
    )
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "streams.png").stat().st_size > 10_000
    assert len((tmp_path / "streams.csv").read_text().splitlines()) == 7


@pytest.mark.flaky(reruns=2)  # measures rates, which other processes disturb
@pytest.mark.emulation
@pytest.mark.slow  # 7 s
def test_a_built_in_topology_answers_and_matches_its_plan() -> None:
    done = command("topologies", "lan", "--json")
    assert done.returncode in (0, 1), done.stderr  # 1: a value outside on a busy machine
    result = json.loads(done.stdout)
    assert (result["hosts"], result["links"], result["echoes"], result["unanswered"]) == (10, 8, 450, 0), result


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_built_in_topology_fits_this_machine_when_scaled(name: str) -> None:
    links = scaled_plan(name).network.links
    assert 0 < max(link.rate_bps for link in links) <= 100e6 * 1.0001
