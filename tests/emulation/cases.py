"""What the kernel tests do inside the sandbox. Every case returns plain data; the assertions are outside."""

from __future__ import annotations

import itertools
import os
import socket
import struct
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from analysis.benchmarks.sample_plans import plan
from emulation.bulk import BulkTransfer, transfer
from emulation.namespaces import socket_in
from emulation.network import Emulation, no_record
from emulation.ping import Pair, ping
from emulation.probe import Capabilities, probe
from testbed.best_effort import type_of_service
from testbed.plan.model import Plan
from testbed.results.events import read
from testbed.settings.run import Background, Transport
from testbed.settings.series import Series
from tests.links import with_link

EVENTS = Path("/run/testbed/events")


class Records(list[dict[str, Any]]):
    """Stands for the host's event log."""

    def __call__(self, kind: str, **fields: Any) -> None:
        self.append({"kind": kind, **fields})


@cache
def capabilities() -> Capabilities:
    """What this machine has, without netem if the environment says so."""
    return replace(probe(), netem=False) if os.environ.get("TESTBED_WITHOUT_NETEM") else probe()


def emulation(settings: Plan) -> Emulation:
    return Emulation(settings, capabilities(), no_record)


def logged(name: str) -> list[dict[str, Any]]:
    """Events that a helper process has written."""
    return list(read(EVENTS, name))


def rtts(net: Emulation, source: str, target: str, count: int = 50) -> list[float]:
    """Sorted round-trip times between two nodes."""
    pair = Pair("pair", net.namespace_path(source), net.address(target))
    ping([pair], count, 0.01, 1.0)
    return sorted(pair.rtts_s)


def bulk(net: Emulation, source: str, target: str, seconds: float) -> BulkTransfer:
    each = BulkTransfer.between(net, source, target)
    transfer([each], seconds)
    return each


def bytes_at(each: BulkTransfer, at_s: float) -> float:
    """Bytes that had been received at ``at_s`` (time.monotonic), interpolated."""
    times_s, received = zip(*each.received, strict=True)
    return float(np.interp(at_s, times_s, received))


def socket_on(net: Emulation, node: str, kind: socket.SocketKind) -> socket.socket:
    """A blocking socket of a node's network namespace."""
    sock = socket_in(net.namespace_path(node), kind)
    sock.setblocking(True)
    return sock


def start(net: Emulation, epoch_s: float, training_start_s: float | None = None) -> None:
    """Start the monitor, and the replay now or at ``training_start_s``."""
    net.helpers.start_monitor(epoch_s)
    net.helpers.begin(epoch_s, time.monotonic() if training_start_s is None else training_start_s)


# -- cases --------------------------------------------------------------------------------------------------------


def measured() -> list[dict[str, Any]]:
    """Three data centres with three different links, measured as before a run."""
    settings = plan(
        {
            ("dc0", "dc1"): {"rate_bps": 5e6, "delay_s": 0.005},
            ("dc0", "dc2"): {"rate_bps": 20e6, "delay_s": 0.025},
            ("dc1", "dc2"): {"rate_bps": 40e6, "delay_s": 0.05},
        },
        sites=3,
        workers=2,
    )
    records = Records()
    with Emulation(settings, capabilities(), records) as net:
        net.measure()
        up = net.bring_up_s
    return [*records, {"kind": "bring_up", "seconds": up}]


def seen_before_training() -> dict[str, Any]:
    """What the monitor records while links are measured, and from its start on."""
    begin = time.monotonic()
    settings = plan({("dc0", "dc1"): {"rate_bps": 5e6, "delay_s": 0.005}})
    with Emulation(settings, capabilities(), no_record, EVENTS, begin) as net:
        net.measure()
        sent = {name: link.sent_bytes for name, link in net.counters().items()}
        while any(_recorded(name) < carried for name, carried in sent.items()):  # it is read while it grows
            assert time.monotonic() < begin + 30, "what links carry is not recorded"
            time.sleep(0.02)
        net.helpers.start_monitor(begin)
        net.helpers.finish()
    return {"monitor": logged("network-monitor"), "sent": sent}


def _recorded(link: str) -> int:
    """What the monitor has recorded so far of what a link has carried before training."""
    own = [event for event in logged("network-monitor") if event["kind"] == "probe" and event["link"] == link]
    return int(own[-1]["bytes"]) if own else 0


def read_back() -> list[str]:
    """What is wrong with the settings of links that were changed behind the Plan's back, one after another."""
    from testbed.errors import NetworkMismatch

    messages = []
    with emulation(plan({("dc0", "dc1"): {"loss": 0.01, "loss_burst_packets": 3.0, "corruption": 0.001}})) as net:
        assert net.shaper is not None
        net.shaper.verify()
        shaper = net.shaper
        for change in (
            lambda: shaper.set_rate("dc0>dc1", 10e6),
            lambda: shaper.set_path("dc0>dc1", delay_s=0.05),
            lambda: shaper.set_path("dc0>dc1", loss=0.02),
        ):
            change()
            try:
                net.shaper.verify()
            except NetworkMismatch as error:
                messages.append(str(error))
            net.shaper.set_rate("dc0>dc1", net.plan.network.links[0].rate_bps)
            net.shaper.apply_plan()
    return messages


def lost_numbers(burst: float) -> list[int]:
    """Which of 3000 numbered datagrams are lost."""
    got = set(_numbers({"loss": 0.05, "loss_burst_packets": burst}, 3000))
    return [number for number in range(3000) if number not in got]


def refused() -> list[str]:
    """A network whose links were changed behind the Plan's back does not pass ``measure``."""
    from testbed.errors import NetworkMismatch

    messages = []
    for slower in (True, False):
        with emulation(plan({("dc0", "dc1"): {}})) as net:
            assert net.shaper is not None
            if slower:
                net.shaper.set_rate("dc0>dc1", 10e6)
            else:
                net.shaper.set_path("dc0>dc1", delay_s=0.05)
            try:
                net.measure()
            except NetworkMismatch as error:
                messages.append(str(error))
    return messages


def live_change() -> dict[str, Any]:
    """A full queue while rate and delay change: what waits in it must still be there."""
    settings = plan({("dc0", "dc1"): {"rate_bps": 1e6, "delay_s": 0.01, "queue_bytes": 200_000}})
    with emulation(settings) as net:
        assert net.shaper is not None
        sender = socket_on(net, "dc0/worker0", socket.SOCK_DGRAM)
        for _ in range(100):
            sender.sendto(bytes(1000), (net.address("dc1/worker0"), 9))
        time.sleep(0.05)
        before = net.counters()["dc0>dc1"]
        net.shaper.set_rate("dc0>dc1", 1.5e6)
        net.shaper.set_path("dc0>dc1", delay_s=0.03)
        after = net.counters()["dc0>dc1"]
        slow = rtts(net, "dc1/worker0", "dc0/worker0", 1)
        net.shaper.set_rate("dc0>dc1", 50e6)
        time.sleep(0.2)
        drained = net.counters()["dc0>dc1"]
        fast = rtts(net, "dc0/worker0", "dc1/worker0", 20)
        sender.close()
    return {
        "backlog_before": before.backlog_bytes,
        "backlog_after": after.backlog_bytes,
        "rate": after.configured_bps,
        "dropped": drained.dropped_packets,
        "sent_packets_bytes": drained.sent_bytes,
        "slow_s": slow,
        "fast_s": fast,
        "backlog_drained": drained.backlog_bytes,
    }


def traced() -> dict[str, Any]:
    """One bulk flow over a link whose rate follows steps of half a second and whose delay steps once."""
    rates = Series(times_s=(0.0, 0.5, 1.0, 1.5), values=(20e6, 5e6, 10e6, 30e6), period_s=2.0)
    delays = Series(times_s=(0.0, 2.0), values=(0.005, 0.02))
    base = plan({("dc0", "dc1"): {"rate_bps": 20e6, "delay_s": 0.005, "queue_bytes": 100_000}})
    settings = with_link(base, "dc0>dc1", rate_trace=rates, delay_trace=delays)
    with emulation(settings) as net:
        epoch = time.monotonic()
        begin = epoch + 0.6
        start(net, epoch, begin)
        each = bulk(net, "dc0/worker0", "dc1/worker0", 4.7)
        time.sleep(0.1)
        late = rtts(net, "dc0/worker0", "dc1/worker0", 10)
        net.helpers.finish()
    # measured from 60 ms into a step on: packets sent in the step before are still on their way
    steps = [
        (bytes_at(each, begin + at + 0.5) - bytes_at(each, begin + at + 0.06)) * 8 / 0.44
        for at in (0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
    ]
    return {"steps": steps, "replay": logged("network-replay"), "monitor": logged("network-monitor"), "rtt_s": late}


def jittered() -> list[float]:
    base = plan({("dc0", "dc1"): {"rate_bps": 50e6, "delay_s": 0.02}})
    with emulation(with_link(base, "dc0>dc1", jitter_s=0.01)) as net:
        start(net, time.monotonic())
        return rtts(net, "dc0/worker0", "dc1/worker0", 200)


def goodput(jitter_s: float) -> float:
    """Bits per second of one TCP connection over 50 Mbit/s and 40 ms that jitter."""
    base = plan({("dc0", "dc1"): {"rate_bps": 50e6, "delay_s": 0.02}})
    with emulation(with_link(base, "dc0>dc1", jitter_s=jitter_s)) as net:
        start(net, time.monotonic())
        begin = time.monotonic()
        each = bulk(net, "dc0/worker0", "dc1/worker0", 8.0)
        return (bytes_at(each, begin + 7.5) - bytes_at(each, begin + 2.5)) * 8 / 5


def lossy(loss: float, packets: int) -> dict[str, float]:
    from analysis.benchmarks.links import count_datagrams

    with emulation(plan({("dc0", "dc1"): {"rate_bps": 200e6, "loss": loss, "queue_bytes": 1_000_000}})) as net:
        before = net.counters()["dc0>dc1"].lost_packets
        received = count_datagrams(net, "dc0/worker0", "dc1/worker0", packets)
        return {"received": received, "lost": net.counters()["dc0>dc1"].lost_packets - before}


def routed() -> dict[str, list[float]]:
    """A ring of four routers, entered at two places: paths of one destination part by their source."""
    ways = {("dc0", "a"): 1, ("dc1", "a"): 2, ("a", "b"): 4, ("a", "c"): 8, ("b", "dc2"): 16, ("c", "dc2"): 32}
    pairs = {pair: {"rate_bps": 100e6, "delay_s": ms / 1e3} for pair, ms in ways.items()}
    there = {"dc0>dc2": ("dc0>a", "a>b", "b>dc2"), "dc1>dc2": ("dc1>a", "a>c", "c>dc2"), "dc0>dc1": ("dc0>a", "a>dc1")}
    back = {"dc2>dc0": ("dc2>b", "b>a", "a>dc0"), "dc2>dc1": ("dc2>c", "c>a", "a>dc1"), "dc1>dc0": ("dc1>a", "a>dc0")}
    with emulation(plan(pairs, sites=3, routers=("a", "b", "c"), routes=there | back)) as net:
        return {
            f"{x}>{y}": rtts(net, f"dc{x}/worker0", f"dc{y}/worker0", 10)
            for x, y in ((0, 1), (0, 2), (1, 2), (2, 0), (2, 1))
        }


def congestion_control(name: str) -> list[str]:
    """What an ordinary socket on a node gets, and the settings that go with it."""
    settings = plan({("dc0", "dc1"): {}}, transport=Transport(congestion_control=name))
    with emulation(settings) as net:
        sender = socket_on(net, "dc0/worker0", socket.SOCK_STREAM)
        sender.setblocking(False)
        sender.connect_ex((net.address("dc1/worker0"), 9))
        used = sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).split(b"\0")[0].decode()
        sender.close()
        shown = []
        for setting in ("tcp_slow_start_after_idle", "tcp_no_metrics_save"):
            with tempfile.TemporaryFile("w+") as told:
                net.exec("dc0/worker0", ["cat", f"/proc/sys/net/ipv4/{setting}"], stdout=told).wait(240)
                told.seek(0)
                shown.append(told.read().strip())
    return [used, *shown]


def reordered(share: float, jitter_s: float = 0.0) -> list[int]:
    """The order in which numbered datagrams arrive, sent 1 ms apart over 20 ms."""
    base = plan({("dc0", "dc1"): {"rate_bps": 50e6, "delay_s": 0.02, "reordering": share}})
    with emulation(with_link(base, "dc0>dc1", jitter_s=jitter_s)) as net:
        start(net, time.monotonic())
        receiver = socket_on(net, "dc1/worker0", socket.SOCK_DGRAM)
        receiver.bind((net.address("dc1/worker0"), 9999))
        receiver.settimeout(0.5)
        sender = socket_on(net, "dc0/worker0", socket.SOCK_DGRAM)
        got = []
        with sender, receiver:
            for number in range(500):
                sender.sendto(number.to_bytes(2, "big"), receiver.getsockname())
                time.sleep(0.001)
                if number >= 100:  # the socket does not hold all of them
                    got.append(int.from_bytes(receiver.recv(2), "big"))
            while len(got) < 500:
                got.append(int.from_bytes(receiver.recv(2), "big"))
        return got


def bursts(burst: float) -> list[int]:
    """Lengths of the gaps among numbered datagrams on a link that loses a tenth of them."""
    got = [-1, *_numbers({"loss": 0.1, "loss_burst_packets": burst}, 20_000)]
    return [after - before - 1 for before, after in pairwise(got) if after > before + 1]


def _numbers(link: dict[str, float], count: int) -> list[int]:
    """Send numbered datagrams over a link; return the numbers that arrive."""
    with emulation(plan({("dc0", "dc1"): link | {"rate_bps": 200e6, "queue_bytes": 1_000_000}})) as net:
        receiver = socket_on(net, "dc1/worker0", socket.SOCK_DGRAM)
        receiver.bind((net.address("dc1/worker0"), 9999))
        sender = socket_on(net, "dc0/worker0", socket.SOCK_DGRAM)
        got: list[int] = []
        with sender, receiver:
            for first in range(0, count, 50):  # the receiver's buffer does not hold all of them
                for number in range(first, first + 50):
                    sender.sendto(number.to_bytes(2, "big"), receiver.getsockname())
                receiver.settimeout(0.002 if first + 50 < count else 0.5)
                with suppress(TimeoutError):
                    while True:
                        got.append(int.from_bytes(receiver.recv(2), "big"))
        return got


def duplicated(share: float) -> int:
    """How many of 500 datagrams arrive on a link that doubles some; with netem only."""
    return _arrivals({"duplication": share})


def corrupted(share: float) -> int:
    """How many of 500 datagrams arrive on a link that spoils some."""
    return _arrivals({"corruption": share})


def _arrivals(link: dict[str, float]) -> int:
    with emulation(plan({("dc0", "dc1"): link})) as net:
        receiver = socket_on(net, "dc1/worker0", socket.SOCK_DGRAM)
        receiver.bind((net.address("dc1/worker0"), 9999))
        sender = socket_on(net, "dc0/worker0", socket.SOCK_DGRAM)
        receiver.setblocking(False)
        count, last = 0, time.monotonic()
        with sender, receiver:
            for number in itertools.count():
                if number < 500:
                    sender.sendto(bytes(1000), receiver.getsockname())
                time.sleep(0.001)
                with suppress(BlockingIOError):
                    while receiver.recv(1000):
                        count, last = count + 1, time.monotonic()
                if number >= 500 and time.monotonic() > last + 0.5:
                    break
        return count


def outage() -> dict[str, Any]:
    """Echoes every 10 ms over a link that is down from 0.5 s to 0.75 s, and has no rate until 1 s; then by hand."""
    state = Series(times_s=(0.0, 0.5, 0.75), values=(1.0, 0.0, 1.0))
    rate = Series(times_s=(0.0, 0.75, 1.0), values=(10e6, 0.0, 10e6))
    with emulation(with_link(plan({("dc0", "dc1"): {}}), "dc0>dc1", state_trace=state, rate_trace=rate)) as net:
        assert net.shaper is not None
        begin = time.monotonic()
        start(net, begin)
        pair = Pair("pair", net.namespace_path("dc0/worker0"), net.address("dc1/worker0"))
        ping([pair], 150, 0.01, 0.5)
        net.helpers.finish()
        net.shaper.set_up("dc1>dc0", False)
        downed = len(rtts(net, "dc0/worker0", "dc1/worker0", 5))
        net.shaper.set_up("dc1>dc0", True)
        return {"answered": len(pair.rtts_s), "down": downed, "up": len(rtts(net, "dc0/worker0", "dc1/worker0", 5))}


def slow_lan(delay_s: float, rates: bool = True) -> dict[str, Any]:
    """A LAN whose delay is made: inside it, over the WAN, as measured before a run; what one flow gets, and two."""
    base = plan({("dc0", "dc1"): {"delay_s": 0.01}}, workers=3, lan_rate_bps=100e6)
    sites = tuple(replace(site, lan_delay_s=delay_s) for site in base.network.sites)
    records = Records()
    with Emulation(replace(base, network=replace(base.network, sites=sites)), capabilities(), records) as net:
        if rates:
            net.measure()
        lan, wan = rtts(net, "dc0/worker0", "dc0/worker1"), rtts(net, "dc0/worker0", "dc1/worker0")
        goodput = bulk(net, "dc0/worker0", "dc0/worker1", 2.0).goodput_bps(0.5)
        both = [BulkTransfer.between(net, "dc0/worker0", target) for target in ("dc0/worker1", "dc0/worker2")]
        transfer(both, 2.0)
        egress_bps = sum(flow.goodput_bps(0.5) for flow in both)
    measured = {event["link"]: event for event in records if event["kind"] == "measured"}
    told = {"lan_s": lan, "wan_s": wan, "goodput_bps": goodput, "egress_bps": egress_bps}
    return told | {"measured": measured.get("lan dc0")}


def broken_delay_line() -> list[str]:
    """A delay line that dies breaks the link, and is noticed."""
    import signal

    from testbed.errors import RunFailed

    with emulation(plan({("dc0", "dc1"): {}})) as net:
        if net.method != "nfqueue":
            return ["netem"]
        for helper in net.helpers._helpers:
            helper.child.send_signal(signal.SIGKILL)
        time.sleep(0.05)
        answered = rtts(net, "dc0/worker0", "dc1/worker0", 3)
        try:
            net.helpers.check()
        except RunFailed as error:
            return [f"{len(answered)} answers", str(error)]
    return []


def no_threads() -> int:
    """Threads of the host while network, monitor and replay are up: it must be safe to fork."""
    with emulation(with_link(plan({("dc0", "dc1"): {}}), "dc0>dc1", jitter_s=0.001)) as net:
        start(net, time.monotonic())
        return threading.active_count()


def lingering(seconds: float, marker: str) -> str:
    """A network with everything running, until it is killed; tells by a file that it is up."""
    settings = with_link(
        plan({("dc0", "dc1"): {}, ("dc0", "dc2"): {}, ("dc1", "dc2"): {}}, sites=3, workers=2),
        "dc0>dc1",
        jitter_s=0.001,
    )
    with emulation(replace(settings, name="lingering")) as net:
        start(net, time.monotonic())
        net.exec("dc0/worker0", ["sleep", "1000"])
        Path(marker).write_text("up")
        time.sleep(seconds)
    return "ended by itself"


def background() -> dict[str, Any]:
    """Constant, bursty and TCP traffic between data centres, as links and the record see it, and what a flow gets."""
    kinds = (
        Background(kind="constant", source="dc0", target="dc1", rate_bps=8e6, start_s=0.5, stop_s=2.5),
        Background(kind="on_off", source="dc1", target="dc2", rate_bps=8e6, on_s=0.2, off_s=0.2, seed="x"),
        Background(kind="tcp", source="dc2", target="dc0", streams=3),
    )
    pairs = {("dc0", "dc1"): {}, ("dc1", "dc2"): {}, ("dc0", "dc2"): {}}
    settings = replace(plan(pairs, sites=3), background=kinds)
    with emulation(settings) as net:
        net.helpers.start_monitor(time.monotonic())
        begin = time.monotonic()
        net.helpers.begin(begin, begin)
        time.sleep(0.8)
        before = net.counters()
        each = bulk(net, "dc0/worker0", "dc1/worker0", 1.5)
        after = net.counters()
        time.sleep(max(0.0, begin + 4.0 - time.monotonic()))
        totals = {name: counters.sent_bytes for name, counters in net.counters().items()}
        net.helpers.finish()
    took = {name: (after[name].sent_bytes - before[name].sent_bytes) * 8 / 1.5 for name in after}
    return {"beside_bps": each.goodput_bps(0.5), "took_bps": took, "bytes": totals, "log": logged("network-background")}


def served_by_priority() -> dict[str, Any]:
    """All channels together send three times what the link takes, for a second. What of each arrives?"""
    link = {"rate_bps": 10e6, "delay_s": 0.005, "queue_bytes": 30_000}
    channels, size = 3, 1000
    with emulation(plan({("dc0", "dc1"): link}, transport=Transport(best_effort_channels=channels))) as net:
        receiver = socket_on(net, "dc1/worker0", socket.SOCK_DGRAM)
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        receiver.bind((net.address("dc1/worker0"), 7000))
        receiver.setblocking(False)
        sockets = [socket_on(net, "dc0/worker0", socket.SOCK_DGRAM) for _ in range(channels + 1)]
        for channel, sock in enumerate(sockets):
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, type_of_service(channel, channels))
            sock.connect(receiver.getsockname())
        sent = [0] * (channels + 1)
        began_s = time.monotonic()
        while (now_s := time.monotonic() - began_s) < 1.0:
            # channel 0 and 1: 4 Mbit/s each; channel 2: 8 Mbit/s, of which a quarter finds room; channel 3: none
            for channel, rate_bps in enumerate((4e6, 4e6, 8e6, 8e6)):
                while sent[channel] * (size + 42) * 8 < rate_bps * now_s:
                    sockets[channel].send(struct.pack("!B", channel) + bytes(size - 1))
                    sent[channel] += 1
            time.sleep(0.001)
        time.sleep(0.3)
        arrived = [0] * (channels + 1)
        with suppress(BlockingIOError):
            while True:
                arrived[receiver.recv(2048)[0]] += 1
        dropped = net.counters()["dc0>dc1"].dropped_packets
        for sock in (receiver, *sockets):
            sock.close()
        return {"sent": sent, "arrived": arrived, "dropped": dropped}
