"""Deadlines: in order on every network, longer on slower ones, and refused when a user puts them out of order."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.errors import ScenarioError
from testbed.plan.build import build_plan
from testbed.plan.model import Choice, Timeouts
from testbed.plan.timeouts import model_bytes
from testbed.scenario import loads
from testbed.units import format_duration, format_rate
from tests.scenario.test_bad import GOOD


def timeouts(*overrides: str) -> Timeouts:
    return build_plan(loads(GOOD, "s.yaml", overrides)).timeouts


@settings(deadline=None, max_examples=60)
@given(st.floats(1e3, 1e12), st.floats(0, 10), st.integers(1, 10**6))
def test_in_order_on_every_network(rate_bps: float, delay_s: float, iterations: int) -> None:
    t = timeouts(
        f"links[0].rate={format_rate(rate_bps)}",
        f"links[0].delay={format_duration(delay_s)}",
        f"iterations={iterations}",
    )
    assert t.heartbeat_s < t.suspect_s < t.dead_after_s <= t.tcp_user_timeout_s <= t.step_deadline_s < t.run_deadline_s


def test_a_slow_link_is_given_time() -> None:
    """A megabyte at 10 kbit/s takes 14 minutes, each way, on a link that works."""
    assert timeouts("links[0].rate=10 kbit/s").step_deadline_s > 4 * 14 * 60
    assert timeouts().step_deadline_s < 120


def test_the_lowest_rate_of_a_trace_counts() -> None:
    trace = "links[0].rate_trace=[{at: 0 s, rate: 20 Mbit/s}, {at: 5 s, rate: 10 kbit/s}]"
    assert (
        timeouts(trace).step_deadline_s
        >= timeouts("links[0].rate=10 kbit/s", "links[0].queue=250000 bytes").step_deadline_s
    )


def test_a_change_is_taken() -> None:
    assert timeouts("timeouts.run_deadline=2 h").run_deadline_s == 7200.0


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("timeouts.heartbeat=1 min", "timeouts.heartbeat: heartbeat (60 s) must be below suspect"),
        ("timeouts.dead_after=1 s", "timeouts.dead_after: suspect"),
        ("timeouts.run_deadline=1 s", "timeouts.run_deadline: step_deadline"),
    ],
)
def test_out_of_order_is_refused_where_it_was_written(override: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        timeouts(override)
    assert any(line.startswith(f"--set {override}: {message}") for line in caught.value.problems)


def test_out_of_order_in_a_file_has_its_line() -> None:
    with pytest.raises(ScenarioError, match=r"s\.yaml:12:12: timeouts\.suspect"):
        build_plan(loads(GOOD + "timeouts:\n  suspect: 1 ms\n", "s.yaml"))


def test_the_cnn_fits_its_bound() -> None:
    """178 762 parameters of four bytes at 28x28, GeoMX's demo."""
    assert 4 * 178_762 <= model_bytes(Choice(kind="cnn")) <= 8 * 178_762


def test_an_mlp_fits_its_bound() -> None:
    pixels, classes, width, layers = 28 * 28, 10, 128, 3
    parameters = width * (pixels + 1) + (layers - 1) * width * (width + 1) + classes * (width + 1)
    assert 4 * parameters <= model_bytes(Choice(kind="mlp", options={"hidden": width, "layers": layers}))
