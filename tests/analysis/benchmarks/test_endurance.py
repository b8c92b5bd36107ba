"""Nothing stays after many starts and stops, some of them by SIGKILL; and networks come up in time."""

from __future__ import annotations

import os

import pytest

from analysis.benchmarks.endurance import EnduranceReport, endure

pytestmark = [pytest.mark.emulation, pytest.mark.flaky(reruns=2)]  # bounds on the wall clock


def check(report: EnduranceReport) -> None:
    assert not report.leftovers
    assert report.descriptors[1] <= report.descriptors[0]
    assert max(report.gone_s) < 2.0


def in_time(report: EnduranceReport, limit_s: float) -> None:
    """The machine may be busy: the best counts, and more time is allowed the more it has to do."""
    busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    assert min(report.bring_up_s) < limit_s * busy, report.bring_up_s


@pytest.mark.slow  # 6 s
def test_a_few_starts_and_stops_leave_nothing() -> None:
    report = endure(starts=2, kills=1, sites=4, workers=3, seed=3)
    check(report)
    assert (report.starts, report.killed, len(report.bring_up_s)) == (2, 1, 1)
    in_time(report, 2.0)


@pytest.mark.slow  # 40 s; more of them: testbed bench endurance
def test_many_starts_and_stops_leave_nothing() -> None:
    report = endure(starts=20, kills=3, sites=4, workers=3)
    check(report)
    assert len(report.bring_up_s) == 17
    before, after = report.namespaces
    assert after - before < 100, "the kernel keeps something of every network (20 namespaces each)"


@pytest.mark.slow  # 20 s
def test_networks_of_sixty_hosts_come_up_in_time() -> None:
    report = endure(starts=3, kills=0, sites=4, workers=15)
    check(report)
    in_time(report, 8.0)
