"""Deadlines: in order on every network, longer on slower ones, by a bound of the model; refused out of order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from testbed.axes import Axis
from testbed.errors import ScenarioError
from testbed.plan.bounds import model_bytes
from testbed.plan.build import build_plan
from testbed.plan.stages import Sent
from testbed.plan.timeouts import CEILINGS_S, longest_travel_s
from testbed.scenario import load, loads
from testbed.settings.job import Choice
from testbed.settings.run import Timeouts
from testbed.training.datasets import load_dataset
from testbed.training.models import assemble
from testbed.training.options import DATASETS, MODELS
from testbed.training.options.declarations import IMAGES, RECORDS, TEXT
from testbed.units import format_duration, format_rate
from tests.for_each import for_each
from tests.scenario.test_bad import GOOD

EXAMPLES = Path(__file__).parents[1] / "testing" / "examples"


def timeouts(*overrides: str) -> Timeouts:
    return build_plan(loads(GOOD, "s.yaml", overrides)).timeouts


@given(st.floats(1e3, 1e12), st.floats(0, 10), st.integers(1, 10**6))
def test_in_order_on_every_network(rate_bps: float, delay_s: float, rounds: int) -> None:
    try:
        t = timeouts(
            f"links[0].rate={format_rate(rate_bps)}", f"links[0].delay={format_duration(delay_s)}", f"rounds={rounds}"
        )
    except ScenarioError as refused:
        assert all(" 'timeouts: {" in problem for problem in refused.problems)
        return
    assert all(getattr(t, f"{name}_s") <= ceiling_s for name, ceiling_s in CEILINGS_S.items())
    assert 3 * t.heartbeat_s < t.dead_after_s <= t.tcp_user_timeout_s <= t.step_deadline_s < t.run_deadline_s


def test_a_slow_link_is_given_time() -> None:
    """A megabyte at 10 kbit/s takes 14 minutes, each way, on a link that works."""
    assert timeouts("links[0].rate=10 kbit/s", "links[0].queue=4 KiB").step_deadline_s > 4 * 14 * 60
    assert timeouts().step_deadline_s < 120


def test_the_lowest_rate_of_a_trace_counts() -> None:
    trace = "links[0].rate_trace=[{at: 0 s, rate: 20 Mbit/s}, {at: 5 s, rate: 10 kbit/s}]"
    assert (
        timeouts(trace, "links[0].queue=4 KiB").step_deadline_s
        >= timeouts("links[0].rate=10 kbit/s", "links[0].queue=4 KiB").step_deadline_s
    )


@for_each("outage_s", [20, 3600, 86400])
@for_each(
    "down",
    [
        "rate_trace=[{{at: 0 s, rate: 0 bit/s}}, {{at: {0} s, rate: 2 Mbit/s}}]",
        "rate_trace={{points: [{{at: 0 s, rate: 2 Mbit/s}}, {{at: 10 s, rate: 0 bit/s}},"
        " {{at: {1} s, rate: 2 Mbit/s}}], repeat_after: {1}0 s}}",
        "down=[{{at: 5 s, until: {0} s}}, {{at: 1{0} s, until: {1}5 s}}]",
    ],
)
def test_outages_of_a_link_are_waited_for(down: str, outage_s: int) -> None:
    """Whatever their length, and whatever the queue: TCP tries again at the latest when they have lasted twice."""
    t = timeouts("links[0].rate=20 Mbit/s", "links[0]." + down.format(outage_s, outage_s + 10))
    assert t.dead_after_s > 2 * outage_s - 20 and t.step_deadline_s > t.dead_after_s + 7 * (outage_s - 10)
    assert t.dead_after_s < 30 * outage_s


def test_a_link_that_is_never_up_is_refused_and_one_that_goes_down_for_good_is_told() -> None:
    with pytest.raises(ScenarioError, match=r"topology\.links: east>west is down all the time; remove the link"):
        timeouts("links[0].rate_trace=[{at: 0 s, rate: 0 bit/s}]")
    gone = "links[0].rate_trace=[{at: 0 s, rate: 1 Mbit/s}, {at: 70 s, rate: 0 bit/s}]"
    told = build_plan(loads(GOOD, "s.yaml", [gone])).warnings
    assert "link east>west (and 1 more): down from 70 s for good, an outage of its trace" in told


@for_each(
    ("fault", "lasting"),
    [
        ("node: west/worker0, kind: slow, factor: 1000", "device.step_time=50 s"),
        ("link: east<>west, kind: rate, rate: 10 kbit/s", "links[0].rate=10 kbit/s"),
        ("link: east<>west, kind: delay, delay: 2 s", "links[0].delay=2 s"),
    ],
)
def test_steps_are_given_time_for_faults_that_slow_something_down(fault: str, lasting: str) -> None:
    """The same deadlines as where the fault lasts all the time. Dead nodes are detected as soon as without it."""
    queue = "links[0].queue=4 KiB"
    calm, hit = timeouts(queue), timeouts(queue, f"faults=[{{{fault}, at: 5 s, for: 1 h}}]")
    assert hit.step_deadline_s == pytest.approx(timeouts(queue, lasting).step_deadline_s)
    assert hit.step_deadline_s > 2 * calm.step_deadline_s and hit.run_deadline_s > calm.run_deadline_s
    assert (hit.heartbeat_s, hit.dead_after_s) == (calm.heartbeat_s, calm.dead_after_s)


def test_no_fault_is_too_slow_for_deadlines() -> None:
    hit = timeouts("faults=[{link: east<>west, kind: rate, rate: 1 kbit/s, at: 5 s, for: 1 h}]")
    assert hit.step_deadline_s == CEILINGS_S["step_deadline"]


@for_each(("paradigm", "models"), [("ps", 60), ("hips", 1)])
def test_all_who_push_across_a_link_are_given_time(paradigm: str, models: int) -> None:
    """Sixty workers of a data centre: their models go up and down over one link in every round, or that of all."""
    one = timeouts("links[0].rate=2 Mbit/s", "links[0].queue=64 KiB", "data_centers[west].workers=1", "rounds=1000")
    many = timeouts(
        f"paradigm={paradigm}",
        "links[0].rate=2 Mbit/s",
        "links[0].queue=64 KiB",
        "data_centers[west].workers=60",
        "rounds=1000",
    )
    turns_s = models * 8 * model_bytes(Choice(kind="cnn"), Choice(kind="digits", options={"test_share": 0.2})) / 2e6
    assert many.step_deadline_s >= max(one.step_deadline_s, 4 * turns_s)
    assert many.run_deadline_s >= max(one.run_deadline_s, 5 * 1000 * 2 * turns_s)
    assert (many == one) == (models == 1)


def test_messages_of_a_pipeline_take_turns_on_links_and_replicas_share_delays() -> None:
    overrides = ("links[0].rate=8 Mbit/s", "links[0].delay=100 ms", "topology.lan={rate: 80 Mbit/s, delay: 1 ms}")
    network = build_plan(loads(GOOD, overrides=overrides)).network
    across = Sent(0, "east", "west", size_bytes=1_000_000, messages=3)  # 1 s on the link, 0.1 s on each LAN
    inside = Sent(0, "west", "west", size_bytes=1_000_000, messages=1)
    assert longest_travel_s(network, [across]) == pytest.approx(1.2 + 3 * 0.102)
    assert longest_travel_s(network, [inside]) == pytest.approx(0.2 + 0.002)
    both = [across, inside, replace(across, replica=1)]
    assert longest_travel_s(network, both) == pytest.approx(2 * 1.2 + 0.2 + 3 * 0.102 + 0.002)
    assert longest_travel_s(network, []) == 0.0


LOCAL = "optimizer={kind: sgd, at: worker}"


@for_each(
    ("sync", "apart"),
    [("{kind: diloco, h: 50}", 50), ("{kind: hfa, k1: 20, k2: 10}", 200), ("{kind: esync, fixed_steps: 40}", 40)],
)
def test_local_steps_are_given_time(sync: str, apart: int) -> None:
    """Who is ready waits until the slowest has made all of its steps; and a round is so many steps, not one."""
    slow = ("device.step_time=1 s", "data_centers[west].device.speed=0.2")
    t = timeouts(LOCAL, f"sync={sync}", *slow, "rounds=1000")
    assert t.step_deadline_s >= 2 * apart * 5.0
    assert t.run_deadline_s >= 5 * 1000 * 5.0 * (20 if "hfa" in sync else apart)


def test_so_is_one_that_large_samples_make_large() -> None:
    """Images of 256×256 with 64 channels give a layer of 64 units 268 million parameters: 1.07 GB."""
    large = timeouts(
        "training.data={kind: teacher, side: 256, channels: 64, classes: 10000}", "training.model.kind=mlp"
    )
    assert large.step_deadline_s > 4 * 20 * 1.07e9 * 8 / 20e6


def test_a_model_from_a_file_has_the_size_that_it_is_built_with() -> None:
    """Over 100 kbit/s a model of 256 MiB would take six hours, and packets would not be simulated by default."""
    own = f"training.model={EXAMPLES / 'narrow_perceptron.py'}:NarrowPerceptron"
    plan = build_plan(loads(GOOD, "s.yaml", (own, "links[0].rate=100 kbit/s", "rounds=400", "run.on=simulate")))
    model = assemble(plan.training.model.kind, {}, (1, 8, 8), 10)
    assert model_bytes(plan.training.model, plan.training.data) == 4 * sum(each.numel() for each in model.parameters())
    assert plan.simulation.network == "packets"


@for_each(
    ("override", "message"),
    [
        ("timeouts.heartbeat=1 min", "timeouts.heartbeat: 3 times heartbeat (180 s) must be below dead_after"),
        ("timeouts.dead_after=1 s", "timeouts.dead_after: 3 times heartbeat (3 s) must be below dead_after (1 s)"),
        ("timeouts.run_deadline=1 s", "timeouts.run_deadline: step_deadline"),
    ],
)
def test_out_of_order_is_refused_where_it_was_written(override: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        timeouts(override)
    assert any(line.startswith(f"--set {override}: {message}") for line in caught.value.problems)


@for_each(
    ("overrides", "says"),
    [
        (
            ("links[0].queue=100 MB",),
            r"s.yaml:8:3: topology.links: east>west is too slow, with 20 Mbit/s, for a queue of 100 MB, which takes 40"
            r" s to drain; so timeouts.dead_after would be 26 min 43 s, above 5 min; write a higher rate, a smaller"
            r" 'queue' or 'timeouts: {dead_after: …}'",
        ),
        (("links[0].delay=9 s",), r"the delay of east>west is 9 s; so timeouts.dead_after would be 24 min 1 s"),
        (("device.speed=0.001", "device.step_time=20 s"), r"device.step_time: a training step .*step_deadline "),
        (("device.step_time=5 h",), r"up to 5 h .* timeouts.step_deadline would be 100 h, above 72 h"),
        (("rounds=1000000", "device.step_time=10 s"), r"training: 1000000 rounds of .* timeouts.run_deadline would"),
        (
            ("links[0].rate=1 kbit/s", "links[0].queue=200 bytes", "training.model={kind: mlp, hidden: 2000}"),
            r"a model of 600 kB takes .* 1 kbit/s; so .*step_deadline would",
        ),
    ],
)
def test_a_deadline_that_nobody_meant_is_refused_with_its_reason(overrides: tuple[str, ...], says: str) -> None:
    with pytest.raises(ScenarioError, match=says) as caught:
        timeouts(*overrides)
    assert len(caught.value.problems) == 1, "one value is told once"


def test_a_scenario_may_name_a_longer_one() -> None:
    t = timeouts("links[0].queue=100 MB", "timeouts.dead_after=20 min")
    assert t.dead_after_s == t.tcp_user_timeout_s == 1200.0
    t = timeouts("timeouts.tcp_user_timeout=20 min")
    assert t.step_deadline_s == 1200.0 and t.run_deadline_s >= 10 * 1200.0
    assert timeouts("timeouts.step_deadline=3 h").run_deadline_s == 10 * 3 * 3600.0
    longer = timeouts("device.step_time=5 h", "timeouts.step_deadline=200 h", "rounds=9")
    assert longer.step_deadline_s == 720_000.0 and longer.run_deadline_s <= 10 * 720_000.0


PAIRS = [
    (kind, data)
    for kind, model in MODELS.shipped.items()
    for data, samples in DATASETS.shipped.items()
    if model.takes == samples.gives in (IMAGES, TEXT, RECORDS)
]


def extremes(axis: Axis[Any], kind: str) -> Iterator[dict[str, Any]]:
    """Options as they are, all at their least, all at their most, and each of them at its most alone."""
    ends: dict[str, list[Any]] = {}
    for each in fields(axis[kind]):
        assert each.default is not MISSING
        if "choices" in each.metadata:
            ends[each.name] = list(each.metadata["choices"])
        elif "max" in each.metadata and isinstance(each.default, int):
            ends[each.name] = [each.metadata["min"], each.metadata["max"]]
    yield {}
    for end in (0, -1):
        yield {name: values[end] for name, values in ends.items()}
    for name, values in ends.items():
        yield {name: values[-1]}


def counted(kind: str, options: dict[str, Any], shape: tuple[int, ...], classes: int) -> int | None:
    """Parameters of a model; ``None`` if it is not for such samples."""
    try:
        with torch.device("meta"):
            return sum(parameter.numel() for parameter in assemble(kind, options, shape, classes).parameters())
    except ScenarioError:
        return None


@for_each(("kind", "data"), [*PAIRS][::16])
def test_no_model_is_larger_than_its_bound(kind: str, data: str) -> None:
    checked = 0
    for of_data in extremes(DATASETS, data):
        shape, classes = DATASETS[data].sample_bound(DATASETS.options(data, of_data))
        for options in extremes(MODELS, kind):
            if (parameters := counted(kind, options, shape, classes)) is None:
                continue
            bound = model_bytes(Choice(kind=kind, options=options), Choice(kind=data, options=of_data))
            usual = MODELS[kind].size_bound_bytes(MODELS.options(kind, options))
            assert 4 * parameters <= bound <= max(usual, 5 * 4 * parameters), (of_data, options)
            checked += 1
    assert checked


@for_each(
    ("data", "options"),
    [
        ("digits", {}),
        ("teacher", {"side": 9, "channels": 5, "classes": 7}),
        ("tokens", {"context": 12, "vocabulary": 50}),
        ("clicks", {"fields": 3}),
    ],
)
def test_samples_are_known_before_they_are_drawn(data: str, options: dict[str, Any]) -> None:
    drawn = load_dataset(data, options, 1)
    assert DATASETS[data].sample_bound(DATASETS.options(data, options)) == (drawn.input_shape, drawn.classes)


def test_the_place_of_a_slow_link_is_the_key_that_the_file_has(tmp_path: Path) -> None:
    """Of measurements there is no key ``topology.links``."""
    (tmp_path / "rtt.csv").write_text("rtt ms,a,b\na,,80\nb,80,\n")
    (tmp_path / "bandwidth_mbps.csv").write_text("rate Mbit/s,a,b\na,,0.001\nb,0.001,\n")
    network = "topology: {measurements: [rtt.csv, bandwidth_mbps.csv], workers: 2, central: a}\n"
    head = GOOD.partition("topology:")[0]
    (tmp_path / "s.yaml").write_text(f"{head}{network}{GOOD[GOOD.index('training:') :]}")
    with pytest.raises(ScenarioError) as caught:
        build_plan(load(tmp_path / "s.yaml"))
    (told,) = caught.value.problems
    assert (
        "topology.measurements: a>b is too slow, with 1 kbit/s, for a queue of 64 KiB, which takes 8 min 44 s" in told
    )
    assert "timeouts.dead_after would be 5 h 50 min, above 5 min" in told and "e+" not in told
