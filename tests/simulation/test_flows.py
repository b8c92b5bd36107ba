"""The flow network: closed forms, a brute-force reference, invariants, and numba against Python."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.simulation.clock import Clock
from testbed.simulation.flows.network import FlowClass, FlowNetwork
from testbed.simulation.machine import compiled, engine
from tests.simulation.brute import Case, Change, Flow, finish_times, random_case, run_network, shares

EXACT = 1e-9
SOLVERS = [False, True]  # by Python, by numba


def ends(capacities: list[float], *flows: Flow, changes: tuple[Change, ...] = ()) -> list[float]:
    return run_network(Case(capacities, list(flows), list(changes)))[0]


# ---- closed forms ---------------------------------------------------------------------------------------------------


def test_one_flow_takes_size_over_capacity() -> None:
    assert ends([10.0], Flow(0, (0,), 50)) == pytest.approx([5.0], rel=EXACT)


@pytest.mark.parametrize("n", [2, 7, 100])
def test_n_equal_flows_end_together(n: int) -> None:
    assert ends([10.0], *[Flow(0, (0,), 50)] * n) == pytest.approx([5.0 * n] * n, rel=EXACT)


def test_staggered_arrivals_share_as_a_processor() -> None:
    # 0-2 s: first alone (20 of 50); then 5 each: first has 30 left, ends at 8; the second has 20 left then
    assert ends([10.0], Flow(0, (0,), 50), Flow(2, (0,), 50)) == pytest.approx([8.0, 10.0], rel=EXACT)


def test_weights_divide_two_to_one() -> None:
    # 20 and 10 of 30 bytes/s: the heavy ends at 3 s, then the light alone has 30 left
    assert ends([30.0], Flow(0, (0,), 60, weight=2.0), Flow(0, (0,), 60)) == pytest.approx([3.0, 4.0], rel=EXACT)


def test_a_capped_flow_leaves_the_rest_to_the_other() -> None:
    assert ends([30.0], Flow(0, (0,), 50, cap=5.0), Flow(0, (0,), 100)) == pytest.approx([10.0, 4.0], rel=EXACT)


def test_a_cap_that_changes_counts_from_then_on() -> None:
    clock = Clock()
    network = FlowNetwork(clock, [30.0])
    flow_class, end = network.flow_class((0,)), []
    network.start(flow_class, 100, lambda: end.append(clock.now))
    clock.at(2.0, lambda _: network.set_cap(flow_class, 8.0))
    clock.run()
    assert end == pytest.approx([2.0 + 40 / 8], rel=EXACT)


def test_parking_lot_rates() -> None:
    """One long flow over three links of 10, 20 and 40, a short one on each: 5, and 5, 15, 35."""
    flows = [Flow(0, (0, 1, 2), 1), Flow(0, (0,), 1), Flow(0, (1,), 1), Flow(0, (2,), 1)]
    assert rates([10.0, 20.0, 40.0], flows) == pytest.approx([5, 5, 15, 35], rel=EXACT)
    assert shares([10.0, 20.0, 40.0], flows) == pytest.approx([5, 5, 15, 35], rel=EXACT)


def test_a_flow_ends_where_the_integral_of_its_capacity_is_its_size() -> None:
    changes = (Change(2, 0, 5.0), Change(6, 0, 0.0), Change(7, 0, 40.0))
    assert ends([10.0], Flow(0, (0,), 80), changes=changes) == pytest.approx([8.0], rel=EXACT)


def test_a_multiplicity_is_so_many_flows() -> None:
    """Sixteen flows in one entry, beside one other flow, end as sixteen entries do."""

    def run(entries: int, flows: int) -> tuple[list[float], float]:
        clock = Clock()
        network = FlowNetwork(clock, [170.0])
        end: list[float] = []
        many, one = network.flow_class((0,)), network.flow_class((0,), weight=2.0)
        for _ in range(entries):
            network.start(many, 100, lambda: end.append(clock.now), flows)
        network.start(one, 30, lambda: end.append(clock.now))
        clock.run()
        return end, network.delivered_bytes(many)

    folded, unfolded = run(1, 16), run(16, 1)
    assert folded[0][-1] == pytest.approx(unfolded[0][-1], rel=EXACT)
    assert folded[0][0] == pytest.approx(unfolded[0][0], rel=EXACT)
    assert folded[1] == unfolded[1] == 1600


def test_a_flow_in_the_place_of_another_needs_no_new_shares() -> None:
    """A connection's next message: what others get does not change, and nothing is solved for them."""
    clock = Clock()
    network = FlowNetwork(clock, [10.0])
    serial, other = network.flow_class((0,)), network.flow_class((0,))
    end: list[float] = []
    sizes = [10.0] * 5

    def following() -> None:
        end.append(clock.now)
        if sizes:
            network.start(serial, sizes.pop(), following)

    network.start(serial, sizes.pop(), following)
    network.start(other, 1000.0, lambda: None)
    clock.run()
    assert end == pytest.approx([2, 4, 6, 8, 10], rel=EXACT)


def test_an_idle_network_schedules_nothing() -> None:
    clock = Clock()
    network = FlowNetwork(clock, [10.0])
    network.start(network.flow_class((0,)), 10, lambda: None)
    clock.run()
    assert clock.now == pytest.approx(1.0)
    assert network.active == 0


# ---- against the reference ------------------------------------------------------------------------------------------


@pytest.mark.sample(1)  # of 3, which take 3 s
@pytest.mark.parametrize("first", range(0, 600, 200))
def test_random_dynamic_cases_agree_with_brute_force(first: int) -> None:
    for seed in range(first, first + 30):
        case = random_case(seed)
        end, network = run_network(case)
        assert end == pytest.approx(finish_times(case), rel=EXACT), seed
        carried = sum(each.delivered for each in network.net.flow_class_list)
        assert carried == pytest.approx(sum(flow.size_bytes for flow in case.flows), rel=EXACT)


def test_numba_gives_the_same_bits() -> None:
    for seed in range(60):
        case = random_case(seed)
        assert run_network(case, compiled=True)[0] == run_network(case)[0], seed


@pytest.mark.parametrize("compiled", SOLVERS)
def test_a_network_that_begins_anew_keeps_its_links_and_what_they_have_carried(compiled: bool) -> None:
    clock, ended = Clock(), list[float]()
    network = FlowNetwork(clock, [100.0, 50.0], compiled)
    for link in range(2):
        flow = network.flow_class((link,))
        flow.record.watched = True
        network.start(flow, 100.0, lambda: ended.append(clock.now))
    clock.run()
    network.set_capacity(0, 60.0)
    clock.run()
    assert network.carried_bytes((0, 1)) == [100.0, 100.0]
    network.begin_anew()
    assert network.is_compiled == compiled
    assert [network.capacity(link) for link in range(2)] == [60.0, 50.0]
    begin_s = clock.now
    flow = network.flow_class((0, 1))
    flow.record.watched = True
    network.start(flow, 100.0, lambda: ended.append(clock.now))
    clock.run()
    assert ended[2:] == pytest.approx([begin_s + 2.0])
    assert network.carried_bytes((0, 1)) == [200.0, 200.0]


def test_numba_gives_the_same_bits_with_more_classes_than_there_was_room_for() -> None:
    flows = [Flow(0.1 * i, (i % 5, 5 + i % 7), 100.0 + i, 3.0 + i % 4, 1.0 + i / 100) for i in range(300)]
    case = Case([11.0 + i for i in range(12)], flows, [])
    assert run_network(case, compiled=True)[0] == run_network(case)[0]


@pytest.mark.parametrize("compiled", SOLVERS)
def test_links_that_have_nothing_in_common_may_change_at_the_same_instant(compiled: bool) -> None:
    """One has a class to itself, which its cap holds; the other is shared, and holds both of its classes."""
    flows = [Flow(0, (0,), 100, 4.0), Flow(0, (1,), 100), Flow(0, (1,), 100, weight=2.0)]
    case = Case([10.0, 30.0], flows, [Change(1, 0, 3.0), Change(1, 1, 12.0)])
    assert run_network(case, compiled)[0] == pytest.approx(finish_times(case), rel=EXACT)


def test_who_is_compiled_under_way_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "LOADED", set())
    monkeypatch.setattr(engine, "LOAD_AFTER", 8)
    monkeypatch.setattr(compiled, "is_kept", lambda program: True)
    count = 0
    for seed in range(60):
        case = random_case(seed)
        end, network = run_network(case, compiled=None)
        assert end == run_network(case)[0], seed
        count += network.is_compiled
    assert 15 < count < 60


# ---- invariants -----------------------------------------------------------------------------------------------------

_capacity = st.floats(0.5, 200.0)
_flow = st.builds(
    Flow,
    st.one_of(st.just(0.0), st.floats(0, 10)),
    st.lists(st.integers(0, 4), min_size=1, max_size=4, unique=True).map(tuple),
    st.floats(1, 500),
    st.one_of(st.just(math.inf), st.floats(1, 50)),
    st.sampled_from([1.0, 2.0, 0.5, 0.1]),
)
_change = st.builds(Change, st.floats(0, 20), st.integers(0, 4), _capacity)
_case = st.builds(
    Case,
    st.lists(_capacity, min_size=5, max_size=5),
    st.lists(_flow, min_size=1, max_size=15),
    st.lists(_change, max_size=4),
)


def rates(capacities: list[float], flows: list[Flow], compiled: bool = False) -> list[float]:
    """Rates after all flows have started at once, each in a class of its own."""
    clock = Clock()
    network = FlowNetwork(clock, capacities, compiled)
    classes: list[FlowClass] = []
    for flow in flows:
        classes.append(network.flow_class(flow.path, flow.weight, flow.cap))
        network.start(classes[-1], 1e9, lambda: None)
    clock.run(until=1.0)
    return [network.delivered_bytes(flow_class) for flow_class in classes]


@given(_case)
def test_the_bottleneck_property(case: Case) -> None:
    """No link is overloaded; each flow is at its cap, or crosses a full link where nobody has more per weight.

    This is the definition of weighted max-min fairness, and implies that no capacity is left unused.
    """
    got = rates(case.capacities, case.flows)
    load = [sum(r for r, f in zip(got, case.flows, strict=True) if link in f.path) for link in range(5)]
    assert all(used <= capacity * (1 + EXACT) for used, capacity in zip(load, case.capacities, strict=True))
    level = [rate / flow.weight for rate, flow in zip(got, case.flows, strict=True)]
    for i, flow in enumerate(case.flows):
        at_cap = got[i] >= flow.cap * (1 - EXACT)
        assert at_cap or any(
            load[link] >= case.capacities[link] * (1 - EXACT)
            and all(level[j] <= level[i] * (1 + EXACT) for j, f in enumerate(case.flows) if link in f.path)
            for link in flow.path
        )


@given(_case)
def test_agrees_with_brute_force(case: Case) -> None:
    assert run_network(case)[0] == pytest.approx(finish_times(case), rel=1e-8)


@given(_case, st.lists(st.floats(0, 40), max_size=5))
def test_what_is_delivered_and_left_is_the_size(case: Case, looks: list[float]) -> None:
    """At any time, for each flow in a class of its own; and the times of what happens never fall."""
    clock = Clock()
    network = FlowNetwork(clock, case.capacities)
    classes = [network.flow_class(flow.path, flow.weight, flow.cap) for flow in case.flows]
    begun, times, seen = [False] * len(classes), [], []

    def start(i: int) -> None:
        begun[i] = True
        times.append(clock.now)
        network.start(classes[i], case.flows[i].size_bytes, lambda: times.append(clock.now))

    def look(_: object) -> None:
        times.append(clock.now)
        for i, flow_class in enumerate(classes):
            size = case.flows[i].size_bytes if begun[i] else 0.0
            seen.append((network.delivered_bytes(flow_class) + network.left_bytes(flow_class), size))

    for i, flow in enumerate(case.flows):
        clock.at(flow.start_s, lambda _, i=i: start(i))  # type: ignore[misc]
    for at_s in looks:
        clock.at(at_s, look)
    clock.run()
    look(None)
    assert times == sorted(times)
    assert [total for total, _ in seen] == pytest.approx([size for _, size in seen], rel=1e-9, abs=1e-6)


@given(_case, st.sampled_from([2.0, 0.25, 1024.0]))
def test_scaling_bytes_and_capacity_leaves_times_unchanged(case: Case, factor: float) -> None:
    scaled = Case(
        [c * factor for c in case.capacities],
        [f._replace(size_bytes=f.size_bytes * factor, cap=f.cap * factor) for f in case.flows],
        [c._replace(capacity=c.capacity * factor) for c in case.changes],
    )
    assert run_network(scaled)[0] == pytest.approx(run_network(case)[0], rel=1e-8)


@given(_case, st.randoms(use_true_random=False))
def test_the_order_of_insertion_does_not_matter(case: Case, random: object) -> None:
    order = list(range(len(case.flows)))
    random.shuffle(order)  # type: ignore[attr-defined]
    shuffled = Case(case.capacities, [case.flows[i] for i in order], case.changes)
    end = run_network(case)[0]
    assert run_network(shuffled)[0] == pytest.approx([end[i] for i in order], rel=1e-8)


@given(st.lists(st.floats(1, 500), min_size=1, max_size=10), _capacity, st.floats(1.0, 4.0))
def test_more_capacity_never_delays_a_single_bottleneck(sizes: list[float], capacity: float, more: float) -> None:
    flows = [Flow(i * 0.5, (0,), size) for i, size in enumerate(sizes)]
    slow, fast = ends([capacity], *flows), ends([capacity * more], *flows)
    assert max(fast) <= max(slow) * (1 + EXACT)


@pytest.mark.parametrize("compiled", SOLVERS)
def test_thousand_flows_to_one_server(compiled: bool) -> None:
    """Uplinks of four kinds into one shared port: those that fit get all, the others share what is left."""
    uplinks = [(1.0, 2.0, 5.0, 10.0)[i % 4] for i in range(1000)]
    got = rates([*uplinks, 1750.0], [Flow(0, (i, 1000), 1) for i in range(1000)], compiled)
    level = (1750.0 - 250 * 1.0) / 750  # at this level of 2.0 only the slowest kind is limited by its uplink
    assert got == pytest.approx([min(uplink, level) for uplink in uplinks], rel=EXACT)
    assert sum(got) == pytest.approx(1750.0, rel=EXACT)


@pytest.mark.parametrize("compiled", SOLVERS)
def test_limits_of_all_sizes_into_a_port_that_becomes_slower_and_faster(compiled: bool) -> None:
    """Where the port's level was is no guide to where it is: it falls below most limits, and rises above all."""
    limits = [2.0**i for i in range(-6, 14)]
    flows = [
        Flow(0.1 * i, (i % 20, 20), limits[i % 20] * 40, cap=limits[i % 20] * (0.5 if i % 3 else 2.0), weight=1 + i % 4)
        for i in range(60)
    ]
    changes = [Change(at_s, 20, rate) for at_s, rate in ((5.0, 3.0), (9.0, 1e6), (12.0, 40.0), (20.0, 900.0))]
    case = Case([*limits, 500.0], flows, changes)
    assert run_network(case, compiled)[0] == pytest.approx(finish_times(case), rel=EXACT)


def test_an_outage_leaves_nothing_scheduled() -> None:
    """Neither a run that nothing advances any more nor a network at rest would be known by its events."""
    clock, ended = Clock(), list[float]()
    network = FlowNetwork(clock, [10.0])
    network.start(network.flow_class((0,)), 50, lambda: ended.append(clock.now))
    clock.at(2.0, lambda _: network.set_capacity(0, 1e-9))
    clock.at(12.0, lambda _: network.set_capacity(0, 10.0))
    clock.finish()
    assert ended == pytest.approx([15.0])
    assert clock.now < 16.0 and clock.only_background
