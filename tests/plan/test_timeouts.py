"""Deadlines: in order on every network, longer on slower ones, and refused when a user puts them out of order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import ScenarioError
from testbed.plan.build import build_plan
from testbed.plan.model import Choice, Timeouts
from testbed.plan.timeouts import model_bytes
from testbed.scenario import loads
from testbed.training.options.declarations import UNKNOWN_MODEL_BYTES
from testbed.units import format_duration, format_rate
from tests.scenario.test_bad import GOOD


def timeouts(*overrides: str) -> Timeouts:
    return build_plan(loads(GOOD, "s.yaml", overrides)).timeouts


@given(st.floats(1e3, 1e12), st.floats(0, 10), st.integers(1, 10**6))
def test_in_order_on_every_network(rate_bps: float, delay_s: float, rounds: int) -> None:
    t = timeouts(
        f"links[0].rate={format_rate(rate_bps)}",
        f"links[0].delay={format_duration(delay_s)}",
        f"rounds={rounds}",
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


LOCAL = "optimizer={kind: sgd, at: worker}"


@pytest.mark.parametrize(
    ("sync", "apart"),
    [("{kind: diloco, h: 50}", 50), ("{kind: hfa, k1: 20, k2: 10}", 200), ("{kind: esync, fixed_steps: 40}", 40)],
)
def test_local_steps_are_given_time(sync: str, apart: int) -> None:
    """Who is ready waits until the slowest has made all of its steps; and a round is so many steps, not one."""
    slow = ("device.step_time=1 s", "data_centers[west].device.speed=0.2")
    t = timeouts(LOCAL, f"sync={sync}", *slow, "rounds=1000")
    assert t.step_deadline_s >= 2 * apart * 5.0
    assert t.run_deadline_s >= 5 * 1000 * 5.0 * (20 if "hfa" in sync else apart)


def test_so_is_the_slack_of_esync() -> None:
    slack = timeouts(LOCAL, "sync={kind: esync, slack_s: 10 min}", "rounds=1000")
    assert slack.step_deadline_s > 600 and slack.run_deadline_s > 1000 * 600


def test_where_every_step_is_a_round_nothing_is_added() -> None:
    assert timeouts(LOCAL, "sync={kind: diloco, h: 1}") == timeouts()


def test_a_large_model_is_given_time() -> None:
    """GPT-2 XL: 6.2 GB, up and down in each of the rounds."""
    declared = Choice(kind="declared", options={"name": "gpt2-xl", "sequence": 0, "file": "", "buckets": 0})
    assert model_bytes(declared) == 4 * 1_557_611_200
    small = Choice(kind="declared", options={**declared.options, "name": "resnet18"})
    assert model_bytes(small) == UNKNOWN_MODEL_BYTES


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
