"""How a scenario is run: back ends, sockets, deadlines, recovery and checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from testbed.costs import Row
from testbed.declaration import Problem, derived, option, required
from testbed.facilities import BACK_ENDS, Facilities


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSection:
    """How the scenario is run."""

    on: str = option("emulate", choices=tuple(BACK_ENDS))
    """emulate: Mininet, real processes. simulate: virtual time. local: real processes on loopback, without a WAN.
    exact: as emulate, in a kernel of its own in virtual time, so that results do not depend on the machine's load.
    cluster: deployed on machines, one or more for each data centre (`cluster`), over their own network."""

    @property
    def facilities(self) -> Facilities:
        """What the run will have there."""
        return BACK_ENDS[self.on]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transport:
    """Socket options, set in every namespace and recorded; never inherited from the machine."""

    congestion_control: str = option("cubic", choices=("cubic", "reno", "bbr"))
    """TCP's congestion control."""
    slow_start_after_idle: bool = False
    """Whether TCP begins with a small window again after a pause (the kernel's own default is yes)."""
    unsent_limit_bytes: int = option(131_072, unit="bytes")
    """Bytes that may wait in a socket unsent (TCP_NOTSENT_LOWAT); small, so that a later message of higher priority can
    overtake."""
    mac: str = option("aes-gmac", choices=("aes-gmac", "none"))
    """How frames on a network are authenticated; none: to measure what a code costs. Frames in shared memory have no
    code."""
    shared_memory: bool = True
    """Whether nodes of a data centre exchange bytes through memory, on `local`, on one machine of a `cluster`, and on
    `emulate` if `lan` is unshaped (above 2 Gbit/s, delay 0)."""
    tls: bool = False
    """Whether connections between nodes are encrypted (TLS 1.3, with a certificate made for the run)."""
    # UDP channels beside the reliable one; where there are any, channels are marked in the IP header, and bottlenecks
    # serve them by priority
    best_effort_channels: int = derived(0)
    send_buffer_bytes: int | None = option(None, unit="bytes")
    """The most data that a socket holds; by default enough for the longest path."""
    receive_buffer_bytes: int | None = option(None, unit="bytes")
    """The largest window that a socket offers: one connection gets no more than this in a round trip."""
    initial_window_packets: int | None = option(None, min=1, max=1000, key="initial_window")
    """Packets that TCP sends before the first acknowledgement (the kernel's own default is 10)."""
    parallel_streams: int = option(1, min=1, max=64)
    """Connections that bulk background traffic and measuring tools open between two data centres."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Deadlines, derived from rates, delays and sizes (``testbed.plan.timeouts``), so that they hold on a slow WAN.

    One that a scenario changes may be longer than what is allowed of derived ones: dead_after 5 min, rendezvous and
    tcp_user_timeout 10 min, step_deadline 72 h, run_deadline 720 h.
    """

    heartbeat_s: float = required(unit="s", min=1e-6)
    """Time between two heartbeats."""
    dead_after_s: float = required(unit="s", min=1e-6)
    """Time without a heartbeat after which a node counts as lost, more than three heartbeats."""
    step_deadline_s: float = required(unit="s", min=1e-6)
    """The longest wait inside a round."""
    run_deadline_s: float = required(unit="s", min=1e-6, max=8760 * 3600.0)
    """The longest run."""
    tcp_user_timeout_s: float = required(unit="s", min=1e-6)
    """Time without an acknowledgement after which TCP closes a connection."""
    rendezvous_s: float = required(unit="s", min=1e-6)
    """The longest wait for all nodes to register."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """How the virtual world runs; other back ends ignore it."""

    fold: bool = True
    """Let one coroutine run all workers of a data centre that wait for each other, where results stay the same."""
    events: str = option("auto", choices=("auto", "full", "brief"))
    """What nodes log. brief: workers log only their rounds, and no node logs what happens inside a LAN. auto: brief for
    runs of very many nodes."""
    network: str = option("auto", choices=("auto", "packets", "flows", "ideal", "tcp", "emulated"))
    """packets: TCP segment by segment over emulated links, which predicts best. flows: rates and a model of TCP's
    windows, for very large networks. auto: packets where at most 20 million of them are predicted for the whole run
    and it keeps no checkpoints, else flows. ideal: every byte of a link carries payload, flows share links equally, and
    connections have no start-up: for closed forms and bounds. tcp and emulated are former names of flows and
    packets."""
    network_reason: str = derived("")  # why the Plan has this one (``testbed.plan.network_model``)
    payloads: float = derived(1.0)  # what is sent is so many times as large as it is: as of a larger model
    costs: dict[str, Row] = option(dict, form="costs")
    """{file: NAME.csv}: what encoding, decoding and optimizer steps cost, as `testbed calibrate --costs` measures it.
    Rows that it lacks are taken from the reference machine."""

    @property
    def by_packet(self) -> bool:
        """Whether packets are simulated, with what emulated links and ports do to them."""
        return self.network in ("packets", "emulated")  # the second in Plans of earlier releases


@dataclass(frozen=True, slots=True, kw_only=True)
class Exact:
    """The kernel of an exact run; other back ends ignore it."""

    # with 256 MiB two nodes find no room for PyTorch, and no end; the default for a thousand nodes is 96 GiB
    memory_bytes: int = option(0, unit="bytes", min=512 << 20, max=1024 << 30, absent=0, example="4 GiB")
    """Memory of the guest; the machine provides only what is used. By default 2 GiB, and 96 MiB for each node."""
    system_call_s: float = option(200e-9, unit="s", max=10.0)
    """Virtual time that a system call takes."""
    cpu: str = option("modelled", choices=("modelled", "measured", "none"))
    """What computing takes besides device.step_time. modelled: what a simulated run charges for codecs, sums,
    optimizers and messages (simulation.costs). measured: codecs, sums, copies and optimizers take the time that this
    machine's processor works on them, and so do steps with device.pace: measured; messages as modelled. No two runs
    are then equal. none: nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What is done when a node is lost."""

    on_failure: str = option("abort", choices=("abort", "continue", "restart"))
    """abort: the run fails. continue: the others go on. restart: all go back to the last checkpoint."""
    max_restarts: int = option(3, max=10_000)
    """restart: how often at most."""
    restart_delay_s: float = option(1.0, unit="s", key="delay")
    """restart: time from the loss to the restart."""
    on_nan: str = option("abort", choices=("abort", "skip", "ignore"))
    """When a gradient is not finite. abort: the run ends. skip: that worker contributes zeros to the round."""
    replicas: int = option(0, max=1)
    """continue: nodes that repeat every update of the global server, and take its place when it is lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """What is kept for `testbed run … --resume RUN`: the state of every node that the next round depends on."""

    every: int = option(0, max=10_000_000)
    """Rounds between two checkpoints; 0: none. Workers wait for each other at a checkpoint, whatever the algorithm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """The machines of one data centre."""

    label: str = option("", form="label")
    """Label of its machines in the cluster; by default dc=NAME."""
    machines: int = option(1, max=256)
    """How many machines its nodes are spread over; 0: all that have the label."""
    bind: str = option("", form="address")
    """Address at which its nodes listen; by default that of the machine in the cluster."""
    advertise: str = option("", form="address")
    """Address at which all others reach its nodes, where it differs from bind: behind NAT. Also write ports."""
    ports: tuple[int, int] | None = option(None, form="ports")
    """Ports at which its nodes listen, one each in the order of `testbed plan`; by default the kernel chooses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Where `on: cluster` runs; other back ends ignore it."""

    address: str = "auto"
    """Address of the cluster's head (host:port); auto: the cluster that this machine is part of; loopback: no cluster,
    but a process for each machine, with an address of its own in 127.0.0.0/8."""
    data_centers: dict[str, Machines] = option(dict)
    """What differs from the defaults, by data centre."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Background:
    """Traffic from one data centre to another. Links serve it like the run's reliable traffic, ahead of best effort."""

    kind: str = required(choices=("constant", "on_off", "tcp"))
    """constant: datagrams at 'rate'. on_off: the same in bursts. tcp: connections under congestion control."""
    source: str = required(key="from", form="name")
    """Data centre that sends."""
    target: str = required(key="to", form="name")
    """Data centre that receives."""
    rate_bps: float = option(0.0, unit="bit/s", absent=0.0)
    """Rate of constant and on_off traffic, counted in whole Ethernet frames."""
    on_s: float = option(1.0, unit="s", min=1e-6)
    """Mean length of a burst of on_off traffic (exponentially distributed)."""
    off_s: float = option(1.0, unit="s", min=1e-6)
    """Mean pause between two bursts."""
    streams: int = option(0, min=1, max=64, absent=0)
    """Connections of tcp traffic; default transport.parallel_streams."""
    start_s: float = option(0.0, unit="s")
    """Time since the start of training."""
    stop_s: float = option(float("inf"), unit="s", min=1e-6, absent=float("inf"))
    """Time since the start of training; by default it lasts as long as the run."""
    seed: str = derived("")

    def problems(self) -> Iterator[Problem]:
        if self.source == self.target:
            yield "to", f"both ends are '{self.source}'", ""
        if self.kind == "tcp" and self.rate_bps:
            yield "rate", "has no effect on tcp", "congestion control decides; use 'streams'"
        if self.kind != "tcp" and not self.rate_bps:
            yield (), f"{self.kind} traffic has no rate", "write 'rate: 5 Mbit/s'"
        if self.kind != "tcp" and self.streams:
            yield "streams", f"has no effect on {self.kind}", ""
        for key in ("on", "off") if self.kind != "on_off" else ():
            if getattr(self, f"{key}_s") != 1.0:
                yield key, f"has no effect on {self.kind}", "write 'kind: on_off', or remove it"
        if self.stop_s <= self.start_s:
            yield "stop", f"{self.stop_s:g} s does not come after the start, {self.start_s:g} s", ""
