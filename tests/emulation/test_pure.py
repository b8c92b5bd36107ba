"""Parts of the emulation that need neither kernel nor clock: delay line, loss models, trace cursors, layouts."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from emulation.commands import address_lines, delay_rules
from emulation.flood import Flood
from emulation.layout import lay_out
from emulation.replay import Replay, Timeline, timelines_of
from emulation.sample_plans import plan, with_link
from emulation.settings import settings
from emulation.shaping.base import LinkSpec
from emulation.shaping.install import delay_line_settings, link_specs
from emulation.shaping.line import Line
from emulation.shaping.loss import LossModel
from emulation.shaping.table import PARTS_PER_BILLION, Column, Table
from emulation.shaping.traffic_control import FRAME_BYTES, burst_bytes
from testbed.errors import ScenarioError
from testbed.plan.model import Series, TransportPlan

MS = 1_000_000


@pytest.fixture
def line() -> Line:
    return Line(Table.create(1).row(0), seed=1)


def test_a_line_releases_when_the_delay_has_passed(line: Line) -> None:
    line.cells[Column.DELAY_NS] = 20 * MS
    assert line.arrive([1, 2], 0) == [] and line.arrive([3], 5 * MS) == []
    assert line.next_due_ns() == 20 * MS
    assert line.release(20 * MS - 1) is None
    assert line.release(20 * MS) == 2
    assert line.cells[Column.WAITING] == 1
    assert line.release(25 * MS) == 3
    assert line.next_due_ns() is None
    assert (line.cells[Column.PACKETS], line.cells[Column.WAITING]) == (3, 0)


def test_a_shrinking_delay_does_not_reorder(line: Line) -> None:
    line.cells[Column.DELAY_NS] = 80 * MS
    line.arrive([1], 0)
    line.cells[Column.DELAY_NS] = 20 * MS
    line.arrive([2], 10 * MS)
    assert line.release(30 * MS) is None
    assert line.cells[Column.WAITING] == 2
    assert line.release(80 * MS) == 2


def test_lateness_is_counted(line: Line) -> None:
    line.arrive([1], 0)
    line.release(int(0.5 * MS))
    assert line.cells[Column.LATE_COUNT] == 0
    line.arrive([2, 3], 10 * MS)
    line.release(17 * MS)
    assert (line.cells[Column.LATE_COUNT], line.cells[Column.LATE_MAX_NS]) == (2, 7 * MS)


def test_lost_packets_never_come_out(line: Line) -> None:
    line.cells[Column.LOSS_PPB] = PARTS_PER_BILLION // 4
    lost: list[int] = []
    for first in range(0, 20_000, 10):
        lost += line.arrive(range(first, first + 10), first)
    assert line.cells[Column.LOST] == len(lost) == pytest.approx(5_000, abs=250)
    assert sum(count for _, _, count in line.waiting) == 20_000 - len(lost)
    assert not set(lost) & {last for _, last, _ in line.waiting}
    line.cells[Column.LOSS_PPB] = PARTS_PER_BILLION
    assert line.arrive([1, 2], 0) == [1, 2]


def test_random_loss_is_seeded() -> None:
    def pattern(seed: int) -> list[bool]:
        model = LossModel(seed, 0.1)
        return [model.lost() for _ in range(1000)]

    assert pattern(1) == pattern(1) != pattern(2)


@pytest.mark.parametrize(("loss", "burst"), [(0.02, 1.0), (0.02, 4.0), (0.1, 10.0)])
def test_bursts_have_their_length_and_loss_its_share(loss: float, burst: float) -> None:
    model = LossModel(3, loss, burst)
    lost = [model.lost() for _ in range(200_000)]
    runs = [len(list(group)) for bad, group in itertools.groupby(lost) if bad]
    assert sum(lost) / len(lost) == pytest.approx(loss, rel=0.1)
    assert sum(runs) / len(runs) == pytest.approx(burst if burst > 1 else 1 / (1 - loss), rel=0.1)


@pytest.mark.parametrize("loss", [-0.1, 1.5])
def test_a_loss_is_a_share(loss: float) -> None:
    with pytest.raises(ValueError, match="share between 0 and 1"):
        LossModel(1, loss)


def test_a_timeline_repeats_and_starts_anywhere() -> None:
    timeline = Timeline("a>b", "rate", (0.0, 1.0, 3.0), (10.0, 20.0, 30.0), period_s=4.0)
    assert list(itertools.islice(timeline.changes(), 5)) == [
        (0.0, 10.0, 1.0), (1.0, 20.0, 2.0), (3.0, 30.0, 1.0), (4.0, 10.0, 1.0), (5.0, 20.0, 2.0),
    ]  # fmt: skip
    assert next(timeline.changes(after_s=6.5)) == (5.0, 20.0, 2.0)
    assert next(timeline.changes(after_s=7.0)) == (7.0, 30.0, 1.0)


def test_a_timeline_without_period_ends() -> None:
    timeline = Timeline("a>b", "delay", (0.0, 0.5), (0.1, 0.2))
    assert [change[:2] for change in timeline.changes(after_s=9.0)] == [(0.5, 0.2)]


class FakeShaper:
    """Remembers what a replay does."""

    def __init__(self, specs: tuple[LinkSpec, ...]) -> None:
        self.specs = {spec.name: spec for spec in specs}
        self.done: list[tuple[str, str, float]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda link, value: self.done.append((name, link, round(value, 9)))


def _specs(settings: Any) -> tuple[LinkSpec, ...]:
    return link_specs(lay_out(settings, wires=False), settings, lambda vertex: f"/ns/{vertex}", "nfqueue")


def test_replay_merges_links_in_time_order_and_adds_jitter_to_the_delay() -> None:
    base = plan({("dc0", "dc1"): {"delay_s": 0.05}})
    rate = Series(times_s=(0.0, 0.07), values=(1e6, 2e6))
    delay = Series(times_s=(0.0, 0.06), values=(0.05, 0.08))
    told = with_link(with_link(base, "dc0>dc1", rate_trace=rate, delay_trace=delay), "dc1>dc0", jitter_s=0.01)
    shaper = FakeShaper(_specs(told))
    replay = Replay([Timeline(**timeline) for timeline in timelines_of(told)], shaper)  # type: ignore[arg-type]
    planned = [replay.apply()[1] for _ in range(7)]
    assert planned == sorted(planned)
    assert ("set_rate", "dc0>dc1", 2e6) in shaper.done and ("set_delay", "dc0>dc1", 0.08) in shaper.done
    jittered = [value for what, link, value in shaper.done if (what, link) == ("set_delay", "dc1>dc0")]
    assert len(jittered) == 3 and len(set(jittered)) == 3
    assert all(0.04 <= value <= 0.06 for value in jittered)


def test_layout_of_a_chain() -> None:
    settings = plan({("dc0", "core"): {}, ("core", "dc1"): {}}, routers=("core",), workers=2)
    layout = lay_out(settings, wires=False)
    assert layout.vertices == (
        *(f"dc{a}/worker{b}" for a in (0, 1) for b in (0, 1)),
        "dc0",
        "dc1",
        "core",
        "dc0/lan",
        "dc1/lan",
    )
    assert layout.gateways["dc0"].address == "10.0.0.254/24"
    assert [(link.plan.name, link.egress.interface, link.ingress.vertex) for link in layout.wan] == [
        ("core>dc0", "wan0", "dc0"), ("dc0>core", "wan0", "core"),
        ("core>dc1", "wan1", "dc1"), ("dc1>core", "wan0", "core"),
    ]  # fmt: skip
    ports = [(end.vertex, end.interface) for cable in layout.cables for end in (cable.a, cable.b)]
    assert len(ports) == len(set(ports))
    routes = {(route.vertex, route.subnet): route.via for route in layout.routes if route.subnet != "default"}
    assert routes == {
        ("dc0", "10.0.1.0/24"): "198.18.0.1", ("core", "10.0.1.0/24"): "198.18.0.6",
        ("dc1", "10.0.0.0/24"): "198.18.0.5", ("core", "10.0.0.0/24"): "198.18.0.2",
    }  # fmt: skip
    assert delay_rules(layout, "core").count("NFQUEUE") == 2
    assert delay_rules(layout, "dc0/worker0") == ""


def test_wires_put_the_delay_on_a_port_of_its_own() -> None:
    layout = lay_out(plan({("dc0", "dc1"): {}}), wires=True)
    for link in layout.wan:
        assert link.wire is not None and link.wire.vertex == "wires"
        assert (link.wire.vertex, link.wire.interface) != (link.egress.vertex, link.egress.interface)
    assert ("wires", "br0", ("l0", "r0")) in layout.bridges


def test_a_gateway_takes_no_nodes_address() -> None:
    settings = plan({("dc0", "dc1"): {}}, workers=254)
    with pytest.raises(ScenarioError, match="no free address"):
        lay_out(settings, wires=False)


def test_a_link_needs_its_opposite() -> None:
    settings = plan({("dc0", "dc1"): {}})
    half = settings.network.links[:1]
    from dataclasses import replace

    with pytest.raises(ScenarioError, match="dc0>dc1 has no opposite direction"):
        lay_out(replace(settings, network=replace(settings.network, links=half)), wires=False)


def test_congestion_control_goes_on_every_route_where_the_default_is_refused() -> None:
    lines = address_lines(lay_out(plan({("dc0", "dc1"): {}}), wires=False), "dc0/worker0", "bbr")
    assert [line for line in lines if line.startswith("route")] == [
        "route add 10.0.0.0/24 dev eth0 src 10.0.0.1 congctl bbr", "route add default via 10.0.0.254 congctl bbr",
    ]  # fmt: skip


def test_buffers_hold_the_longest_path() -> None:
    specs = _specs(plan({("dc0", "dc1"): {"rate_bps": 1e9, "delay_s": 0.15}}))
    largest = int(settings(TransportPlan(), specs, router=False)["net.ipv4.tcp_rmem"].split()[2])
    assert largest > 4 * 1e9 / 8 * 0.3


def test_bursts_scale_with_the_rate() -> None:
    assert burst_bytes(1e6) == 2 * FRAME_BYTES
    assert burst_bytes(20e6) == 10_000
    assert burst_bytes(100e6) == 15_000
    assert burst_bytes(1e9) == 125_000


def test_delay_lines_share_the_links_by_rate() -> None:
    base = plan(
        {("dc0", "dc1"): {"rate_bps": 100e6}, ("dc0", "dc2"): {"rate_bps": 10e6}, ("dc1", "dc2"): {"rate_bps": 10e6}},
        sites=3,
    )
    shares = delay_line_settings(_specs(base), Table.create(6), True, 2)
    assert sorted(line["row"] for share in shares for line in share["lines"]) == list(range(6))
    assert {len(share["lines"]) for share in shares} == {3}


def test_a_floods_rate_leaves_the_burst_out() -> None:
    each = Flood("a>b", "", "", "", 1e6)
    gap = FRAME_BYTES * 8 / 1e6
    each.stamps_s = [0.0] * 4 + [gap * number for number in range(1, 31)]
    assert each.measured_bps() == pytest.approx(1e6)
    each.stamps_s = each.stamps_s[:6]
    assert each.measured_bps() is None
