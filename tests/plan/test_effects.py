"""The algebra of faults: laws that do not depend on order, and what is left when one of several faults ends."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from testbed.plan.effects import LAWS, NodeEffects, pieces, with_faults
from testbed.plan.fault_clock import FaultClock
from testbed.plan.model import FaultPlan, LinkPlan, NetworkPlan, Plan
from testbed.settings.series import Series
from tests.faults.runs import faults, plan_of
from tests.for_each import for_each

TENTHS = st.integers(0, 40).map(lambda tenths: tenths / 10)
LENGTHS = st.integers(1, 30).map(lambda tenths: tenths / 10)
VALUES = {
    "down": st.just(0.0),
    "rate": st.sampled_from((1e5, 1e6, 2e7, 9e9)),
    "delay": st.sampled_from((0.0, 0.02, 0.3)),
    "loss": st.sampled_from((0.01, 0.05, 0.3)),
    "corrupt": st.sampled_from((0.01, 0.3)),
    "duplicate": st.sampled_from((0.01, 0.3)),
    "reorder": st.sampled_from((0.01, 0.3)),
}
PERIOD_S = 900.0
LINK = LinkPlan(
    name="a>b",
    source="a",
    target="b",
    rate_bps=1e7,
    delay_s=0.04,
    queue_bytes=65536,
    loss=0.02,
    rate_trace=Series(times_s=(0.0, 1.0, 2.0), values=(1e7, 5e5, 0.0), period_s=PERIOD_S),
    loss_burst_packets=2.0,
)
TRACES = tuple(name for name in LinkPlan.__dataclass_fields__ if name.endswith("_trace"))


@st.composite
def link_fault(draw: st.DrawFn) -> FaultPlan:
    kind = draw(st.sampled_from(tuple(VALUES)))
    burst = draw(st.sampled_from((0.0, 4.0))) if kind == "loss" else 0.0
    length_s = draw(st.one_of(LENGTHS, st.just(math.inf)))
    return FaultPlan(
        kind=kind, targets=("a>b",), at_s=draw(TENTHS), for_s=length_s, value=draw(VALUES[kind]), burst=burst
    )


def hit(*found: FaultPlan) -> LinkPlan:
    network = NetworkPlan(sites=(), routers=(), links=(LINK,), routes={})
    return with_faults(network, found).links[0]


def at(series: Series | None, time_s: float) -> float | None:
    if series is None:
        return None
    inside_s = time_s % series.period_s if math.isfinite(series.period_s) else time_s
    return [value for start_s, value in zip(series.times_s, series.values, strict=True) if start_s <= inside_s][-1]


def functions(link: LinkPlan) -> dict[str, list[tuple[float, float]]]:
    """Return when each trace changes, and to what, in two periods, for however many laps it is written out."""
    found: dict[str, list[tuple[float, float]]] = {}
    for name in TRACES:
        series: Series | None = getattr(link, name)
        changes = found[name] = []
        for begin_s, _, value in series.segments() if series else ():
            if begin_s > 2 * PERIOD_S:
                break
            if not changes or changes[-1][1] != value:
                changes.append((begin_s, value))
    return found


@given(st.lists(link_fault(), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_the_order_of_faults_does_not_matter(found: list[FaultPlan], chance: object) -> None:
    shuffled = list(found)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    mixed, straight = hit(*shuffled), hit(*found)
    for name in TRACES:
        one, other = getattr(mixed, name), getattr(straight, name)
        assert (one and (one.times_s, one.values)) == (other and (other.times_s, other.values))


@given(st.lists(link_fault(), min_size=1, max_size=4), st.data())
def test_a_fault_in_two_parts_is_the_fault(found: list[FaultPlan], data: st.DataObject) -> None:
    whole = found[0]
    assert whole.at_s is not None
    cut_s = data.draw(st.sampled_from((0.1, 0.05, 1 / 3))) * (whole.for_s if math.isfinite(whole.for_s) else 1.0)
    parts = replace(whole, for_s=cut_s), replace(whole, at_s=whole.at_s + cut_s, for_s=whole.for_s - cut_s)
    overlapping = replace(whole, for_s=min(whole.for_s, 2 * cut_s)), parts[1]
    expected = functions(hit(*found))
    assert functions(hit(*parts, *found[1:])) == expected == functions(hit(*found, *overlapping))


def test_a_fault_for_good_that_is_cut_changes_another_lap_of_a_trace_and_no_time() -> None:
    whole = FaultPlan(kind="rate", targets=("a>b",), at_s=0.0, for_s=math.inf, value=1e5)
    parts = replace(whole, for_s=0.1), replace(whole, at_s=0.1)
    assert functions(hit(*parts)) == functions(hit(whole))
    assert functions(hit(whole))["rate_trace"] == [(0.0, 1e5), (2.0, 0.0), (900.0, 1e5), (902.0, 0.0), (1800.0, 1e5)]
    assert functions(hit(replace(whole, value=2e5))) != functions(hit(whole))


@given(st.lists(link_fault(), max_size=4))
def test_a_fault_without_effect_changes_nothing(found: list[FaultPlan]) -> None:
    weaker = (
        FaultPlan(kind="rate", targets=("a>b",), at_s=0.5, for_s=2.0, value=1e7),
        FaultPlan(kind="delay", targets=("a>b",), at_s=0.5, value=0.04),
        FaultPlan(kind="loss", targets=("a>b",), at_s=0.5, for_s=9.0, value=0.02),
    )
    assert hit(*found, *weaker) == hit(*found, *found) == hit(*found)
    assert hit(*weaker) == LINK


@given(st.lists(link_fault(), min_size=2, max_size=5), TENTHS)
def test_a_further_fault_never_makes_a_link_better(found: list[FaultPlan], time_s: float) -> None:
    more, fewer = hit(*found), hit(*found[1:])
    for trace, own, worse in (
        ("rate_trace", 1e7, -1),
        ("state_trace", 1.0, -1),
        ("delay_trace", 0.04, 1),
        ("loss_trace", 0.02, 1),
        ("corruption_trace", 0.0, 1),
        ("duplication_trace", 0.0, 1),
        ("reordering_trace", 0.0, 1),
    ):
        before, after = at(getattr(fewer, trace), time_s), at(getattr(more, trace), time_s)
        assert worse * (own if after is None else after) >= worse * (own if before is None else before)


@for_each("order", [1, -1])
def test_when_one_ends_the_others_count(order: int) -> None:
    long = FaultPlan(kind="loss", targets=("a>b",), at_s=1.0, for_s=4.0, value=0.05)
    short = FaultPlan(kind="loss", targets=("a>b",), at_s=2.0, for_s=1.0, value=0.3, burst=8.0)
    series = hit(*(long, short)[::order])
    assert series.loss_trace is not None and series.burst_trace is not None
    assert (series.loss_trace.times_s, series.loss_trace.values) == ((0, 1, 2, 3, 5), (0.02, 0.05, 0.3, 0.05, 0.02))
    assert (series.burst_trace.times_s, series.burst_trace.values) == ((0, 2, 3), (2, 8, 2))


def test_factors_multiply_in_any_order() -> None:
    texts = [f"kind: slow, node: west/worker0, at: {at_s} s, for: 4 s, factor: {by}" for at_s, by in ((1, 3), (2, 1.7))]
    assert len({plan_of(faults(*some)).node("west/worker0").device for some in (texts, texts[::-1])}) == 1
    slowdown = plan_of(faults(*texts)).node("west/worker0").device.slowdown
    assert slowdown is not None and slowdown.values == (1, 3, 1.7 * 3, 1.7, 1)
    assert LAWS["slow"](2.0, (0.1, 0.7, 0.3)) == LAWS["slow"](2.0, (0.3, 0.1, 0.7))


def test_pieces_of_faults_that_meet_leave_no_gap() -> None:
    base = Series(times_s=(0.0,), values=(1.0,))
    one = FaultPlan(kind="down", targets=("a>b",), at_s=0.1, for_s=0.2)
    other = replace(one, at_s=0.3)
    assert 0.1 + 0.2 != 0.3
    assert [(time_s, len(active)) for time_s, _, active in pieces(base, [one, other])] == [
        (0.0, 0),
        (0.1, 1),
        (0.3, 1),
        (0.5, 0),
    ]


# ---- nodes ----------------------------------------------------------------------------------------------------------

CONTINUE = "recovery={on_failure: continue}"


def done(plan: Plan) -> list[tuple[float, str, str]]:
    """What is done to nodes: (time, action, node)."""
    clock, effects = FaultClock(plan), NodeEffects(plan)
    clock.started(0.0)
    return [
        (round(due.planned_s, 3), action, node)
        for due in clock.take(1e9)
        if due.fault.kind in ("kill", "pause", "join", "leave")
        for action, node in effects.apply(due)
    ]


def actions(*texts: str) -> list[tuple[float, str]]:
    return [(time_s, action) for time_s, action, _ in done(plan_of(CONTINUE, faults(*texts)))]


ONE = "node: east/worker1"


@for_each(
    ("texts", "expected"),
    [
        (
            (f"kind: pause, {ONE}, at: 1 s, for: 4 s", f"kind: pause, {ONE}, at: 2 s, for: 1 s"),
            [(1, "stop"), (2, "stop"), (5, "continue")],
        ),
        (
            (f"kind: pause, {ONE}, at: 1 s, for: 2 s", f"kind: pause, {ONE}, at: 3 s, for: 2 s"),
            [(1, "stop"), (3, "stop"), (5, "continue")],
        ),
        (
            (f"kind: kill, {ONE}, at: 1 s, for: 4 s", f"kind: kill, {ONE}, at: 2 s, for: 1 s"),
            [(1, "kill"), (2, "kill"), (5, "start")],
        ),
        (
            (f"kind: kill, {ONE}, at: 1 s, for: 1 s", f"kind: kill, {ONE}, at: 2 s, for: 1 s"),
            [(1, "kill"), (2, "kill"), (3, "start")],
        ),
        ((f"kind: kill, {ONE}, at: 1 s", f"kind: kill, {ONE}, at: 2 s, for: 1 s"), [(1, "kill"), (2, "kill")]),
        (
            (
                f"kind: pause, {ONE}, at: 1 s, for: 9 s",
                f"kind: kill, {ONE}, at: 2 s, for: 1 s",
                f"kind: pause, {ONE}, at: 4 s, for: 1 s",
            ),
            [(1, "stop"), (2, "kill"), (3, "start"), (4, "stop"), (5, "continue")],
        ),
        ((f"kind: join, {ONE}, at: 5 s", f"kind: kill, {ONE}, at: 1 s, for: 1 s"), [(1, "kill"), (5, "start")]),
        ((f"kind: join, {ONE}, at: 5 s", f"kind: kill, {ONE}, at: 4 s, for: 3 s"), [(4, "kill"), (7, "start")]),
        ((f"kind: leave, {ONE}, at: 1 s", f"kind: kill, {ONE}, at: 2 s, for: 1 s"), [(1, "leave"), (2, "kill")]),
        (
            (
                f"kind: join, {ONE}, at: 5 s",
                f"kind: pause, {ONE}, at: 1 s, for: 30 s",
                f"kind: pause, {ONE}, at: 10 s, for: 2 s",
            ),
            [(5, "start"), (10, "stop"), (12, "continue")],
        ),
        (
            (f"kind: kill, {ONE}, at: 1 s, for: 3 s", f"kind: pause, {ONE}, at: 2 s, for: 30 s"),
            [(1, "kill"), (4, "start")],
        ),
        (
            ("kind: kill, node: east/server0, at: 1 s, for: 3 s", f"kind: pause, {ONE}, at: 2 s, for: 30 s"),
            [(1, "kill"), (4, "start")],
        ),
        (
            (f"kind: leave, {ONE}, at: 1 s", f"kind: pause, {ONE}, at: 2 s, for: 3 s"),
            [(1, "leave"), (2, "stop"), (5, "continue")],
        ),
    ],
)
def test_what_is_done_to_a_node(texts: tuple[str, ...], expected: list[tuple[float, str]]) -> None:
    assert actions(*texts) == actions(*texts[::-1]) == expected


def test_who_is_killed_for_good_does_not_return() -> None:
    for texts, returns in (
        ((f"kind: kill, {ONE}, at: 1 s, for: 4 s",), True),
        ((f"kind: kill, {ONE}, at: 1 s, for: 4 s", f"kind: kill, {ONE}, at: 2 s"), False),
        ((f"kind: kill, {ONE}, at: 1 s, for: 4 s", f"kind: leave, {ONE}, at: 2 s"), False),
    ):
        plan = plan_of(CONTINUE, faults(*texts))
        clock, effects = FaultClock(plan), NodeEffects(plan)
        clock.started(0.0)
        for due in clock.take(3.0):
            effects.apply(due)
        assert effects.returns("east/worker1") == returns


def test_who_starts_with_a_server_that_returns() -> None:
    server = "kind: kill, node: east/server0, at: 1 s, for: 2 s"
    for text, starting in (
        ("kind: kill, node: east/worker1, at: 2 s, for: 9 s", ("east/server0", "east/worker0")),
        ("kind: leave, node: east/worker1, at: 2 s", ("east/server0", "east/worker0")),
        ("kind: pause, node: east/worker1, at: 2 s, for: 9 s", ("east/server0", "east/worker0", "east/worker1")),
    ):
        plan = plan_of(CONTINUE, faults(server, text))
        clock, effects = FaultClock(plan), NodeEffects(plan)
        clock.started(0.0)
        for due in clock.take(2.5):
            effects.apply(due)
        assert effects.starting("east/worker0") == (), "its server is absent"
        for due in clock.take(3.5):
            effects.apply(due)
        assert effects.starting("east/server0") == starting
