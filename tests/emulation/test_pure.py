"""Parts of the emulation that need neither kernel nor clock: delay line, loss models, trace cursors, layouts."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import select
import socket
import struct
import time
from collections import defaultdict
from dataclasses import asdict, fields, replace
from pathlib import Path as FilePath
from types import SimpleNamespace
from typing import Any, cast

import pytest

from analysis.benchmarks.sample_plans import plan
from emulation import monitor, probe, sandbox, traffic
from emulation.bulk import Flood
from emulation.commands import address_lines, delay_rules
from emulation.layout import lay_out
from emulation.measurement import BuiltNetwork, _floods, _link_rtts_s, _rate
from emulation.monitor import BusyTime, Monitor
from emulation.namespaces import Commands
from emulation.probe import Capabilities
from emulation.replay import Replay, Timeline, timelines_of
from emulation.settings import settings, window_share
from emulation.shaping import delay_line
from emulation.shaping.base import LinkCounters, Shaper
from emulation.shaping.delay_line import Line, PacketQueue
from emulation.shaping.delay_makers import DELAY_MAKERS
from emulation.shaping.install import cut_bursts, link_specs, netem_lines, refuse_unsupported
from emulation.shaping.link_spec import LinkSpec
from emulation.shaping.path import Fate, PacketFates, Path, as_netem, kernel_random, netem_options, netem_text
from emulation.shaping.table import DelayField, DelayTable, change_path, path_in
from testbed.errors import CapabilityError, RunFailed, ScenarioError
from testbed.execution import emulate
from testbed.execution.deployment import alone
from testbed.plan.shaping import FRAME_BYTES, burst_bytes
from testbed.results.events import EventLog
from testbed.settings.run import Background, Transport
from testbed.settings.series import Series
from testbed.traffic import bursts
from tests.for_each import for_each
from tests.links import with_link

MS = 1_000_000
KERNEL_DRAWS = [1976660935, 2350886939, 2896332784, 2170846020]


@pytest.fixture
def line() -> Line:
    return Line(DelayTable.create(1).row(0), seed="1")


def test_a_line_releases_when_the_delay_has_passed(line: Line) -> None:
    line.cells[DelayField.DELAY_NS] = 20 * MS
    assert line.arrive([1, 2], 0) == [] and line.arrive([3], 5 * MS) == []
    assert line.next_due_ns() == 20 * MS
    assert line.release(20 * MS - 1) is None
    assert line.release(20 * MS) == 2
    assert [count for _, _, count in line.waiting] == [1]
    assert line.release(25 * MS) == 3
    assert line.next_due_ns() is None
    assert line.cells[DelayField.PACKETS] == 3


def test_a_packet_that_waits_for_an_earlier_one_is_not_late(line: Line) -> None:
    """As a delay has fallen, by a fault, a trace or jitter: else each such run would count as degraded."""
    line.cells[DelayField.DELAY_NS] = 80 * MS
    line.arrive([1], 0)
    line.cells[DelayField.DELAY_NS] = 20 * MS
    line.arrive([2], 10 * MS)
    assert line.release(30 * MS) is None
    assert line.release(80 * MS) == 2
    assert (line.cells[DelayField.LATE_COUNT], line.cells[DelayField.LATE_MAX_NS]) == (0, 0)
    line.arrive([3], 90 * MS)
    assert line.next_due_ns() == 110 * MS


def test_packets_that_the_kernel_cannot_hand_over_are_counted(line: Line) -> None:
    """As it tells no error of them: a run whose delay line had lost thousands was called as configured."""
    queue = PacketQueue.__new__(PacketQueue)
    with socket.socket(type=socket.SOCK_DGRAM) as receiver, socket.socket(type=socket.SOCK_DGRAM) as sender:
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 18)
        receiver.bind(("127.0.0.1", 0))
        receiver.setblocking(False)
        queue.socket = receiver
        for _ in range(2000):
            sender.sendto(bytes(28), receiver.getsockname())
        delay_line._take(queue, line)
        lost = queue.overflows()
        assert line.cells[DelayField.OVERFLOWS] == lost > 0
        while line.cells[DelayField.PACKETS] + lost < 2000:
            delay_line._take(queue, line)
    assert line.cells[DelayField.PACKETS] + lost == 2000


def test_lateness_is_counted(line: Line) -> None:
    line.arrive([1], 0)
    line.release(int(0.5 * MS))
    assert line.cells[DelayField.LATE_COUNT] == 0
    line.arrive([2, 3], 10 * MS)
    line.release(17 * MS)
    assert (line.cells[DelayField.LATE_COUNT], line.cells[DelayField.LATE_MAX_NS]) == (2, 7 * MS)


def test_lost_packets_never_come_out(line: Line) -> None:
    change_path(line.cells, **asdict(Path(loss=0.25)))
    lost: list[int] = []
    for first in range(0, 20_000, 10):
        lost += line.arrive(range(first, first + 10), first)
    assert line.cells[DelayField.LOST] == len(lost) == pytest.approx(5_000, abs=250)
    assert sum(count for _, _, count in line.waiting) == 20_000 - len(lost)
    assert not set(lost) & {last for _, last, _ in line.waiting}
    change_path(line.cells, **asdict(Path(loss=1.0)))
    assert line.arrive([1, 2], 0) == [1, 2]


def test_draws_are_those_of_the_kernel() -> None:
    """The values are those of ``prandom_seed_state`` and ``prandom_u32_state`` of Linux 7.3, compiled and run."""
    draw = kernel_random(0x0123456789ABCDEF)
    assert [draw() for _ in range(4)] == KERNEL_DRAWS


def fates(path: Path, seed: int, count: int) -> list[Fate]:
    fates_of = PacketFates(path, seed)
    return [fates_of.next() for _ in range(count)]


@for_each(("loss", "burst"), [(0.02, 1.0), (0.1, 10.0)])
def test_bursts_have_their_length_and_loss_its_share(loss: float, burst: float) -> None:
    lost = [fate is Fate.LOST for fate in fates(Path(loss=loss, burst=burst), 3, 30_000)]
    runs = [len(list(group)) for bad, group in itertools.groupby(lost) if bad]
    assert sum(lost) / len(lost) == pytest.approx(loss, rel=0.1)
    assert sum(runs) / len(runs) == pytest.approx(burst if burst > 1 else 1 / (1 - loss), rel=0.1)


def test_bursts_go_on_while_the_delay_changes(line: Line) -> None:
    path, lost = Path(loss=0.05, burst=20.0), list[int]()
    for first in range(0, 30_000, 5):  # jitter changes the delay of a slow link every few packets
        change_path(line.cells, **asdict(replace(path, delay_s=first % 7 * 1e-4)))
        lost += line.arrive(range(first, first + 5), first)
    gaps = sum(after - before > 1 for before, after in itertools.pairwise(lost))
    assert len(lost) / 30_000 == pytest.approx(0.05, rel=0.2)
    assert len(lost) / (gaps + 1) == pytest.approx(20, rel=0.2)


def test_bursts_that_netem_ends_early_are_told() -> None:
    jitter, trace = {"jitter_s": 0.002}, {"delay_trace": Series(times_s=(0.0, 1.0), values=(0.02, 0.03))}
    base = plan({("dc0", "dc1"): {"loss": 0.05, "loss_burst_packets": 20.0}})
    assert not list(cut_bursts(base, DELAY_MAKERS["netem"]))
    for change, what in ((jitter, "jitter, which changes"), (trace, "a trace of its delay")):
        changing = with_link(base, "dc0>dc1", **change)
        (told,) = cut_bursts(changing, DELAY_MAKERS["netem"])
        assert told.startswith("link dc0>dc1: fewer packets are lost than planned") and what in told
        assert not list(cut_bursts(changing, DELAY_MAKERS["nfqueue"]))


class FakeShaper:
    """Remembers what a replay does."""

    def __init__(self, specs: tuple[LinkSpec, ...]) -> None:
        self.specs = {spec.name: spec for spec in specs}
        self.done: list[tuple[str, str, float]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda link, *values, **path: self.done.extend(
            (what, link, round(value, 9)) for what, value in (*((name, value) for value in values), *path.items())
        )


def _specs(settings: Any) -> tuple[LinkSpec, ...]:
    return link_specs(lay_out(settings, wires=False), settings, lambda vertex: f"/ns/{vertex}", "nfqueue")


def test_replay_merges_links_in_time_order_and_adds_jitter_to_the_delay() -> None:
    base = plan({("dc0", "dc1"): {"delay_s": 0.05}})
    rate = Series(times_s=(0.0, 0.07), values=(1e6, 2e6))
    delay = Series(times_s=(0.0, 0.06), values=(0.05, 0.08))
    told = with_link(with_link(base, "dc0>dc1", rate_trace=rate, delay_trace=delay), "dc1>dc0", jitter_s=0.01)
    shaper = FakeShaper(_specs(told))
    replay = Replay(timelines_of(_specs(told)), shaper)  # type: ignore[arg-type]
    planned = [replay.apply()[1] for _ in range(7)]
    assert planned == sorted(planned)
    assert ("set_rate", "dc0>dc1", 2e6) in shaper.done and ("delay_s", "dc0>dc1", 0.08) in shaper.done
    jittered = [value for what, link, value in shaper.done if (what, link) == ("delay_s", "dc1>dc0")]
    assert len(jittered) == 3 and len(set(jittered)) == 3
    assert all(abs(value - 0.05) <= 0.01 * 3**0.5 for value in jittered)  # a uniform distribution of that deviation


def test_a_link_is_up_when_neither_its_state_nor_a_rate_of_0_has_it_down() -> None:
    rate = Series(times_s=(0.0, 1.0, 3.0), values=(1e6, 0.0, 2e6))
    state = Series(times_s=(0.0, 2.0, 4.0), values=(1.0, 0.0, 1.0))
    told = with_link(plan({("dc0", "dc1"): {}}), "dc0>dc1", rate_trace=rate, state_trace=state)
    shaper = FakeShaper(_specs(told))
    replay = Replay(timelines_of(_specs(told)), shaper)  # type: ignore[arg-type]
    while replay.due_s is not None:
        replay.apply()
    of_link = [(what, value) for what, _, value in shaper.done]
    assert of_link == [("set_rate", 1e6), ("set_up", False), ("set_rate", 2e6), ("set_up", True)]


def test_a_replay_of_a_resumed_run_begins_with_what_holds_then() -> None:
    """And that is due when its training begins: else fidelity would call it late by all that was before."""
    shaper = FakeShaper(_specs(plan({("dc0", "dc1"): {}})))
    timeline = Timeline("dc0>dc1", "rate", Series(times_s=(0.0, 100.0, 200.0), values=(1e6, 2e6, 3e6)))
    replay = Replay([timeline], shaper, 130.01, 130.0)  # type: ignore[arg-type]
    assert [replay.apply()[1:] for _ in range(2)] == [(130.0, 2e6, 100.0), (200.0, 3e6, math.inf)]


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
        ("core>dc0", "wan0", "dc0"),
        ("dc0>core", "wan0", "core"),
        ("core>dc1", "wan1", "dc1"),
        ("dc1>core", "wan0", "core"),
    ]
    ports = [(end.vertex, end.interface) for cable in layout.cables for end in (cable.a, cable.b)]
    assert len(ports) == len(set(ports))
    routes = {(route.vertex, route.subnet): route.via for route in layout.routes if route.subnet != "default"}
    assert routes == {
        ("dc0", "10.0.1.0/24"): "198.18.0.1",
        ("core", "10.0.1.0/24"): "198.18.0.6",
        ("dc1", "10.0.0.0/24"): "198.18.0.5",
        ("core", "10.0.0.0/24"): "198.18.0.2",
    }
    assert delay_rules(layout, "core").count("NFQUEUE") == 2
    assert delay_rules(layout, "dc0/worker0") == ""


def test_a_gateway_takes_no_nodes_address() -> None:
    settings = plan({("dc0", "dc1"): {}}, workers=254)
    with pytest.raises(ScenarioError, match="no free address"):
        lay_out(settings, wires=False)


def test_buffers_hold_the_longest_path() -> None:
    slow = {"rate_bps": 1e9, "delay_s": 0.15, "queue_bytes": 100_000}

    def limit(links: dict[tuple[str, str], Any]) -> int:
        names = tuple(f"{a}>{b}" for a, b in links)
        network = plan(links, routes={"first>last": names, "first>second": names[:1]}).network
        return int(settings(Transport(), network, router=False)["net.ipv4.tcp_rmem"].split()[2])

    largest = limit({("dc0", "dc1"): slow})
    assert largest > 4 * 1e9 / 8 * 0.3
    traces = {
        "queue_bytes": 100_000,
        "rate_trace": Series(times_s=(0.0, 1.0), values=(1e6, 1e9)),
        "delay_s": 0.01,
        "delay_trace": Series(times_s=(0.0, 1.0), values=(0.01, 0.15)),
    }
    assert limit({("dc0", "dc1"): {"rate_bps": 1e6, **traces}}) == largest
    short = slow | {"delay_s": 0.03}
    assert limit({(f"dc{number}", f"dc{number + 1}"): short for number in range(5)}) == largest, "five links in a row"


def test_bursts_scale_with_the_rate() -> None:
    assert burst_bytes(1e6) == 2 * FRAME_BYTES
    assert burst_bytes(20e6) == 10_000
    assert burst_bytes(100e6) == 15_000
    assert burst_bytes(1e9) == 125_000


def test_a_floods_rate_leaves_the_burst_out() -> None:
    each = Flood("a>b", "", "", "", 1e6)
    gap = FRAME_BYTES * 8 / 1e6
    each.stamps_s = [0.0] * 4 + [gap * number for number in range(1, 31)]
    assert each.measured_bps() == pytest.approx(1e6)
    each.stamps_s = each.stamps_s[:6]
    assert each.measured_bps() is None


def test_a_link_that_is_too_slow_is_measured_as_it_is_emulated() -> None:
    """At 64 kbit/s, as the Plan warns. An echo is within what it sends at once, and takes the delay alone."""
    slow = plan({("dc0", "dc1"): {"rate_bps": 8e3, "delay_s": 0.02}})
    net = cast(
        BuiltNetwork,
        SimpleNamespace(plan=slow, layout=lay_out(slow, wires=False), namespace_path=lambda vertex: f"/ns/{vertex}"),
    )
    assert _link_rtts_s(net)["dc0>dc1"] == pytest.approx(2 * 0.02)
    (flood,) = _floods(net, {slow.network.links[0].name})
    assert (flood.rate_bps, _rate(flood, slow.network.links[0]).planned) == (64e3, 64e3)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


class _Loopback:
    """Background TCP between two sockets of this process. ``accepted``: at the receiver."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(traffic, "socket_in", self._socket)
        self.streams = traffic.Streams(
            Background(kind="tcp", source="a", target="b", streams=1), traffic.Ends("a", "b", "127.0.0.1", _free_port())
        )

    @staticmethod
    def _socket(path: str, kind: socket.SocketKind) -> socket.socket:
        made = socket.socket(socket.AF_INET, kind)
        made.setblocking(False)
        return made

    def until_received(self, size: int) -> None:
        while self.streams.received_bytes < size:
            self.streams.step(1.0)
            for link in select.select(self.streams.readers(), [], [], 0.01)[0]:
                self.streams.read(link)


def _reset(link: socket.socket) -> None:
    link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    link.close()


def test_background_tcp_goes_on_when_a_connection_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a link was down for so long that TCP has given up, at either end."""
    ends = _Loopback(monkeypatch)
    ends.until_received(1)
    _reset(ends.streams._accepted.pop())
    ends.until_received(ends.streams.received_bytes + 1)
    _reset(ends.streams._senders.pop())
    ends.until_received(ends.streams.received_bytes + (1 << 20))
    for link in (*ends.streams._senders, *ends.streams.readers()):
        link.close()


@for_each(("kind", "rate_bps"), [("on_off", 1e6), ("on_off", 20e6), ("constant", 1e5), ("constant", 2e4)])
def test_background_datagrams_are_as_many_as_planned(
    kind: str, rate_bps: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the last ones of bursts that end between two steps, and those of a burst shorter than a frame takes."""
    planned = Background(
        kind=kind, source="a", target="b", rate_bps=rate_bps, stop_s=100.0, on_s=0.02, off_s=0.02, seed="x"
    )
    monkeypatch.setattr(traffic, "socket_in", _Loopback._socket)
    sending = traffic.DatagramTraffic(planned, traffic.Ends("a", "b", "127.0.0.1", _free_port()))
    sending._sender = SimpleNamespace(send=lambda data: None)  # type: ignore[assignment]
    for step in range(50_000):
        sending.step(step * 0.0021)
    due = sum(end_s - begin_s for begin_s, end_s in bursts(planned)) * rate_bps / 8
    assert due - 2 * FRAME_BYTES <= sending.sent_bytes <= due


def test_traces_of_a_resumed_run_go_on(monkeypatch: pytest.MonkeyPatch, tmp_path: FilePath) -> None:
    """Faults of its links, which are in the traces, do not happen once more."""
    begun, line = list[float](), {"kind": "train", "t": 5.0, "resumed_round": 7, "trained_s": 120.0}
    helpers = SimpleNamespace(
        start_monitor=lambda epoch_s: None,
        finish=lambda: None,
        begin=lambda epoch_s, start_s, trained_s: begun.append(start_s - epoch_s - trained_s),
    )
    network = SimpleNamespace(helpers=helpers, capabilities=SimpleNamespace(realtime=False))
    monkeypatch.setattr(emulate, "run_nodes", lambda deployment, *_: deployment.report(line))
    ground = alone(plan({("dc0", "dc1"): {}}), tmp_path, lambda line: None)
    assert emulate._train(ground, network, 10**9, EventLog(tmp_path, "network")) == [None]
    assert begun == [-115.0]


def test_late_packets_are_a_share_of_those_since_the_monitor_began() -> None:
    """And not of the floods before, in which no packet counts as late."""
    specs, warnings = _specs(plan({("dc0", "dc1"): {}})), list[str]()

    class Quiet(FakeShaper):
        def counters(self) -> dict[str, LinkCounters]:
            return {name: LinkCounters(1e9, 0, 0, 0, 0) for name in self.specs}

    log = SimpleNamespace(
        write=lambda kind, now, **fields: warnings.append(fields.get("message", "")),
        flush=lambda: None,
        close=lambda: None,
    )
    table, lan = DelayTable.create(len(specs) + 1), len(specs)
    table.row(0)[DelayField.PACKETS] = 100_000
    watching = Monitor(Quiet(specs), table, log, time.monotonic(), False, ["LAN to dc0"])  # type: ignore[arg-type]
    table.row(0)[DelayField.PACKETS] += 1000
    table.row(0)[DelayField.LATE_COUNT] = 200
    table.row(lan)[DelayField.OVERFLOWS] = 1
    watching.close()
    assert [text for text in warnings if text] == [
        "LAN to dc0: the delay line could not take all packets",
        f"{specs[0].name}: 20.0% of the packets were delayed over 1 ms too long",
    ]


def test_what_links_carry_before_training_is_told_of_those_that_carry_something(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Idle ones are left out; one that begins to carry has done so since it was last seen idle."""
    sent = iter([(0, 0), (98, 0), (98, 0), (98, 0), (98, 500)])
    now = iter([0.0, 0.1, 0.2, 0.3, 0.4])
    told = list[tuple[float, str, int]]()

    def counters() -> dict[str, LinkCounters]:
        return {name: LinkCounters(2e7, size, 0, 0, 0) for name, size in zip("ab", next(sent), strict=True)}

    log = SimpleNamespace(
        write=lambda kind, t, **fields: told.append((t, fields["link"], fields["bytes"])), flush=lambda: None
    )
    monkeypatch.setattr(monitor, "time", SimpleNamespace(monotonic=lambda: next(now)))
    probes = monitor.Probes(SimpleNamespace(counters=counters), log, 0.0)  # type: ignore[arg-type]
    for _ in range(5):
        probes.sample()
    assert told == [(0.0, "a", 0), (0.0, "b", 0), (0.1, "a", 98), (0.3, "b", 0), (0.4, "b", 500)]


def test_packets_that_overtake_are_neither_delayed_nor_waited_for(line: Line) -> None:
    change_path(line.cells, **asdict(Path(delay_s=0.02, reordering=0.25)))
    early = 0
    for first in range(1, 20_000, 10):
        assert line.arrive(range(first, first + 10), first) == []
        early += len(line.early)
        assert not line.waiting or line.waiting[-1][1] not in line.early
    assert early == pytest.approx(5_000, abs=250)
    assert sum(count for _, _, count in line.waiting) == 20_000 - early
    change_path(line.cells, **asdict(Path(delay_s=0.02, reordering=0.25, loss=1.0)))
    assert line.arrive([1, 2], 0) == [1, 2] and line.early == []  # a link that is down lets nothing pass


def test_spoilt_packets_are_lost_beside_the_others() -> None:
    line = Line(DelayTable.create(1).row(0), seed="1")
    change_path(line.cells, **asdict(Path(loss=0.1, burst=4.0, corruption=0.2)))
    lost = line.arrive(range(6_000), 0)
    assert len(set(lost)) == len(lost) == line.cells[DelayField.LOST]
    assert len(lost) == pytest.approx(6_000 * (1 - 0.9 * 0.8), rel=0.05)
    change_path(line.cells, **asdict(Path(loss=0.1, burst=4.0)))
    assert len(line.arrive(range(6_000), 0)) == pytest.approx(600, rel=0.2)


def shaper_on(table: DelayTable, specs: tuple[LinkSpec, ...]) -> Shaper:
    """The shaper of one process, without the kernel's queues."""
    shaper = Shaper.__new__(Shaper)
    shaper.specs, shaper._table = {spec.name: spec for spec in specs}, table
    anything = SimpleNamespace(link=None, index=defaultdict(int))
    shaper._places = defaultdict(lambda: anything)  # type: ignore[arg-type]
    shaper.delays = DELAY_MAKERS[specs[0].method](table, shaper._places)
    return shaper


def test_a_link_goes_down_and_up_and_keeps_its_loss() -> None:
    settings = plan({("dc0", "dc1"): {"loss": 0.01, "loss_burst_packets": 3.0, "reordering": 0.2}})
    table = DelayTable.create(2)
    specs = _specs(settings)
    shaper = shaper_on(table, specs)

    def row() -> tuple[float, float, float]:
        path = path_in(table.row(specs[0].row))
        return path.loss, path.burst, path.reordering

    shaper.apply_plan()
    assert row() == (0.01, 3.0, 0.2)
    shaper.set_up(specs[0].name, False)
    assert row() == (1.0, 1.0, 0.0)
    shaper.set_path(specs[0].name, loss=0.02)  # a trace goes on while the link is down
    assert row() == (1.0, 1.0, 0.0)
    shaper.set_up(specs[0].name, True)
    assert row() == (0.02, 3.0, 0.2)


def test_processes_that_change_one_link_keep_what_the_others_have_set() -> None:
    """The shell takes a link down, and it stays down while the replay follows its jitter, and so on."""
    table, specs = DelayTable.create(2), _specs(plan({("dc0", "dc1"): {}}))
    shell, replay, link = shaper_on(table, specs), shaper_on(table, specs), specs[0].name
    shell.apply_plan()
    shell.set_up(link, False)
    replay.set_path(link, delay_s=0.021)
    assert not shell.is_up(link) and not replay.is_up(link)
    assert Line(table.row(0), seed="1").arrive([1, 2], 0) == [1, 2]
    shell.set_up(link, True)
    replay.set_path(link, loss=0.6)
    shell.set_path(link, delay_s=0.2)
    assert shell.path_of(link) == Path(delay_s=0.2, loss=0.6)


def test_a_link_of_netem_that_is_down_duplicates_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """netem counts a duplicate before it loses the packet, so that one of both would pass."""
    made: list[Path] = []
    monkeypatch.setattr(
        "emulation.shaping.traffic_control.change_netem", lambda link, index, path, limit, seed: made.append(path)
    )
    specs = tuple(replace(spec, method="netem") for spec in _specs(plan({("dc0", "dc1"): {"duplication": 0.1}})))
    shaper = shaper_on(DelayTable.create(2), specs)
    shaper.apply_plan()
    shaper.set_up(specs[0].name, False)
    shaper.set_path(specs[0].name, duplication=0.2)
    shaper.set_up(specs[0].name, True)
    assert [path.duplication for path in made[-4:]] == [0.1, 0.0, 0.0, 0.2]
    assert made[-2].loss == 1.0


def test_what_only_netem_can_do_is_refused_by_name() -> None:
    settings = plan({("dc0", "dc1"): {"duplication": 0.02}})
    refuse_unsupported(settings, DELAY_MAKERS["netem"])
    with pytest.raises(CapabilityError, match=r"dc0>dc1: duplication of 0.02; dc1>dc0: .*modprobe sch_netem"):
        refuse_unsupported(settings, DELAY_MAKERS["nfqueue"])
    later = Series(times_s=(0.0, 5.0, 6.0), values=(0.0, 0.3, 0.0))
    with pytest.raises(CapabilityError, match=r"dc1>dc0: duplication of 0.3"):
        refuse_unsupported(
            with_link(plan({("dc0", "dc1"): {}}), "dc1>dc0", duplication_trace=later), DELAY_MAKERS["nfqueue"]
        )


def test_netems_arguments_and_structures() -> None:
    path = Path(delay_s=0.02, loss=0.01, burst=4.0, corruption=0.001, duplication=0.002, reordering=0.25)
    assert netem_text(path) == (
        "delay 20000us rate 34359738352bit loss gemodel 0.2525253% 25.0000000% 100% 0%"
        " corrupt 0.1000000% duplicate 0.2000000% reorder 25.0000000% gap 1"
    )
    assert netem_text(Path(delay_s=0.001, loss=0.05)) == "delay 1000us rate 34359738352bit loss random 5.0000000%"
    kinds = dict(netem_options(path, 1000, 15.625, 7))
    ticks, limit, loss, gap, duplicate, jitter = struct.unpack("=IIIIII", kinds[0])
    assert (ticks, limit, loss, gap, jitter) == (312_500, 1000, 0, 1, 0)
    assert duplicate / 0xFFFFFFFF == pytest.approx(0.002)
    assert struct.unpack("=q", kinds[10]) == (20_000_000,)
    assert struct.unpack("=IiIi", kinds[6]) == (34_359_738_352 // 8, 0, 0, 0)
    assert struct.unpack("=II", kinds[3])[0] / 0xFFFFFFFF == pytest.approx(0.25)
    model = struct.unpack_from("=HHIIII", kinds[5])
    assert model[:2] == (20, 2) and model[2] / model[3] == pytest.approx(0.01 / 0.99) and model[4:] == (0, 0)
    assert struct.unpack("=IIIIII", dict(netem_options(Path(loss=1.0, burst=4.0), 1, 1.0, 7))[0])[2] == 0xFFFFFFFF
    assert struct.unpack("=Q", kinds[14]) == (7,)
    assert asdict(as_netem(path)) == pytest.approx(asdict(path), rel=1e-7)
    assert as_netem(Path(delay_s=0.02, loss=0.9, burst=2.0)).loss == pytest.approx(2 / 3), "no state is left sooner"


@for_each("wires", [False, True])
def test_the_ends_of_a_wan_link_know_each_others_hardware_address(wires: bool) -> None:
    layout = lay_out(plan({("dc0", "dc1"): {}}), wires=wires)
    ends = ["\n".join(address_lines(layout, vertex, "")) for vertex in ("dc0", "dc1")]
    for mine, others in (ends, ends[::-1]):
        address = re.search(r"wan0 address (\S+)", others)
        assert address and f" lladdr {address[1]} dev wan0 nud permanent" in mine


@for_each("wires", [False, True])
def test_a_slow_lans_delay_is_made_and_a_fast_ones_is_not(wires: bool) -> None:
    settings = plan({("dc0", "dc1"): {}}, workers=2)
    assert lay_out(settings, wires=wires).lan_delays == ()
    sites = tuple(replace(site, lan_delay_s=0.002) for site in settings.network.sites)
    layout = lay_out(replace(settings, network=replace(settings.network, sites=sites)), wires=wires)
    assert [delay.port.vertex for delay in layout.lan_delays] == [
        "dc0",
        "dc0/worker0",
        "dc0/worker1",
        "dc1",
        "dc1/worker0",
        "dc1/worker1",
    ]
    ends = [(end.vertex, end.interface) for cable in layout.cables for end in (cable.a, cable.b)]
    assert len(ends) == len(set(ends))
    if wires:
        assert ("wires", "lan0", ("near0", "far0")) in layout.bridges
        assert sum("delay 2000us" in line for line in netem_lines((), layout, "wires")) == 6
    else:
        assert delay_rules(layout, "dc0/worker1").count("-i eth0 -j NFQUEUE --queue-num 0") == 1


def test_socket_buffers_and_the_initial_window() -> None:
    transport = Transport(receive_buffer_bytes=65_536, send_buffer_bytes=1_000_000)
    found = settings(transport, plan({("dc0", "dc1"): {}}).network, router=False)
    share = window_share(os.uname().release)
    assert found["net.ipv4.tcp_rmem"].split()[2] == str(int(65_536 / share))
    assert found["net.ipv4.tcp_wmem"] == "4096 65536 1000000"
    assert (window_share("6.1.0-18-amd64"), window_share("6.18.44")) == (0.5, 0.625)


@for_each(("missing", "says"), [("icmp", "ICMP.*--cap-add NET_RAW"), ("bridge", "bridge.*modprobe bridge")])
def test_what_a_container_forbids_is_named_with_its_cure(missing: str, says: str) -> None:
    all_there: dict[str, Any] = {field.name: True for field in fields(Capabilities)}
    Capabilities(**all_there).require_emulation()
    with pytest.raises(CapabilityError, match=says):
        Capabilities(**{**all_there, missing: False}).require_emulation()


@for_each(
    ("setting", "forbids", "cure"),
    [
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns=0"),
        ("user/max_user_namespaces", "0", "user.max_user_namespaces=10000"),
    ],
)
def test_the_setting_that_forbids_namespaces_is_named_and_nothing_that_could_not_be_tried(
    setting: str, forbids: str, cure: str, monkeypatch: pytest.MonkeyPatch, tmp_path: FilePath
) -> None:
    (tmp_path / setting).parent.mkdir()
    (tmp_path / setting).write_text(f"{forbids}\n")
    monkeypatch.setattr(probe, "_PROC_SYS", tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    nothing: dict[str, Any] = {field.name: False for field in fields(Capabilities)}
    (gap,) = Capabilities(**{**nothing, "mininet": "2.3.0", "mnexec": True}).gaps()
    assert gap.name == "namespaces" and f"sudo sysctl {cure};" in gap.cure and "--privileged" in gap.cure


def reading(sent_bytes: int, backlog_bytes: int, rate_bps: float = 20e6) -> dict[str, LinkCounters]:
    return {"a>b": LinkCounters(rate_bps, sent_bytes, 0, 0, backlog_bytes)}


@for_each(
    ("user", "effective", "needed"),
    [(0, "000001ffffffffff", False), (0, "00000000a80425fb", True), (0, "000001ffffffefff", True), (1000, "0", True)],
)
def test_a_root_that_may_not_make_namespaces_uses_a_user_namespace(
    user: int, effective: str, needed: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: FilePath
) -> None:
    """As that of a container with Docker's own capabilities, or without CAP_NET_ADMIN."""
    status = tmp_path / "status"
    status.write_text(f"Name:\tpython\nCapPrm:\t0\nCapEff:\t{effective}\nThreads:\t1\n")
    monkeypatch.setattr(sandbox, "Path", lambda name: status)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert sandbox.needs_user_namespace() is needed
    assert ("--map-root-user" in sandbox.sandbox_command(["true"])) is needed


def test_a_link_is_busy_where_its_queue_lasts_until_the_next_reading() -> None:
    """In 25 ms 62.5 kB leave at 20 Mbit/s."""
    busy = BusyTime()
    for now_s, sent_bytes, backlog_bytes in ((0.0, 0, 100_000), (0.025, 60_000, 40_000), (0.05, 110_000, 30_000)):
        busy.update(now_s, reading(sent_bytes, backlog_bytes))
    assert busy.so_far("a>b") == {"busy_s": 0.025, "busy_bytes": 60_000, "busy_possible_bytes": 62_500}
    busy.update(0.06, reading(135_000, 5_000))
    assert busy.so_far("a>b")["busy_s"] == 0.035, "30 kB last for 12 ms"


def test_what_one_process_has_found_out_another_takes_from_the_manifest() -> None:
    found = Capabilities(
        **{each.name: ("bbr",) if "tuple" in str(each.type) else True for each in fields(Capabilities)}
    )
    told = json.loads(json.dumps({"delay_method": "nfqueue", **found.to_dict(), "gpus": []}))
    assert Capabilities.of(told) == found
    del told["veth"]
    assert Capabilities.of(told) is None  # of another release, or of a guest's kernel


def test_commands_run_beside_each_other_and_the_words_of_one_that_fails_are_told() -> None:
    """Each waits for the next one, which would not start before its end."""
    pipe = os.pipe()
    with Commands(at_once=2) as commands:
        commands.start(["sh"], f"read line < /proc/{os.getpid()}/fd/{pipe[0]}")
        commands.start(["sh"], f"echo go > /proc/{os.getpid()}/fd/{pipe[1]}")
    for descriptor in pipe:
        os.close(descriptor)
    with Commands() as commands:  # a list of interfaces that has changed meanwhile is no failure
        commands.start(["sh"], "echo Dump was interrupted and may be inconsistent.\n")
    with pytest.raises(RunFailed, match=r"sh \(one of: echo no; exit 3\): no \(exit 3\)"), Commands(2) as commands:
        commands.start(["sh"], "echo no\nexit 3\n")
        commands.start(["sleep", "60"], "")  # which is ended
        commands.start(["true"], "")
