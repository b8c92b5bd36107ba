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
        """What a run has on this back end."""
        return BACK_ENDS[self.on]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transport:
    """Socket options, set in every namespace and recorded; never inherited from the machine."""

    congestion_control: str = option("cubic", choices=("cubic", "reno", "bbr"))
    """TCP's congestion control."""
    slow_start_after_idle: bool = False
    """Whether TCP begins with a small window again after a pause (the kernel's own default is yes)."""
    unsent_limit_bytes: int = option(131_072, unit="bytes")
    """Unsent bytes that may wait in a socket (TCP_NOTSENT_LOWAT); few, so that a later message of higher priority can
    overtake them."""
    mac: str = option("aes-gmac", choices=("aes-gmac", "none"))
    """Authentication code of frames on a network; none is for measuring the cost of the code. Frames in shared memory
    have no code."""
    shared_memory: bool = True
    """Whether nodes of a data centre exchange bytes through memory, on `local`, on one machine of a `cluster`, and on
    `emulate` if `lan` is unshaped (above 2 Gbit/s, delay 0)."""
    tls: bool = False
    """Whether connections between nodes are encrypted (TLS 1.3, with a certificate made for the run)."""
    # number of UDP channels beside the reliable one; if there are any, all packets carry their channel in the IP
    # header, and bottlenecks serve channels by priority
    best_effort_channels: int = derived(0)
    send_buffer_bytes: int | None = option(None, unit="bytes")
    """Most data that a socket holds for sending; by default enough for the longest path."""
    receive_buffer_bytes: int | None = option(None, unit="bytes")
    """Largest window that a socket offers: a connection receives at most this much per round trip."""
    initial_window_packets: int | None = option(None, min=1, max=1000, key="initial_window")
    """Packets that TCP sends before the first acknowledgement (the kernel's own default is 10)."""
    parallel_streams: int = option(1, min=1, max=64)
    """Connections that bulk background traffic and measuring tools open between two data centres."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Deadlines, derived from rates, delays and sizes (``testbed.plan.timeouts``), so that they hold on a slow WAN.

    Derived deadlines are at most: dead_after 5 min, rendezvous and tcp_user_timeout 10 min, step_deadline 72 h,
    run_deadline 720 h. A scenario may set longer ones.
    """

    heartbeat_s: float = required(unit="s", min=1e-6)
    """Time between two heartbeats."""
    dead_after_s: float = required(unit="s", min=1e-6)
    """Time without a heartbeat after which a node counts as lost, more than three heartbeats."""
    step_deadline_s: float = required(unit="s", min=1e-6)
    """Longest wait inside a round."""
    run_deadline_s: float = required(unit="s", min=1e-6, max=8760 * 3600.0)
    """Longest duration of the run."""
    tcp_user_timeout_s: float = required(unit="s", min=1e-6)
    """Time without an acknowledgement after which TCP closes a connection."""
    rendezvous_s: float = required(unit="s", min=1e-6)
    """Longest wait for all nodes to register."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """How the virtual world runs; other back ends ignore it."""

    fold: bool = True
    """Whether one coroutine may run all workers of a data centre that wait for each other, if results stay the same."""
    events: str = option("auto", choices=("auto", "full", "brief"))
    """The events that nodes log. brief: workers log only their rounds, and no node logs traffic inside a LAN. auto:
    brief for runs of very many nodes."""
    network: str = option("auto", choices=("auto", "packets", "flows", "ideal", "tcp", "emulated"))
    """packets: simulates TCP segment by segment over emulated links; predicts best. flows: simulates rates and a model
    of TCP's windows, for very large networks. auto: packets if the run is predicted to send at most 20 million packets
    and keeps no checkpoints, else flows. ideal: for closed forms and bounds; every byte of a link carries payload,
    flows share links equally, and connections need no start-up. tcp and emulated are former names of flows and
    packets."""
    network_reason: str = derived("")  # why the Plan has this model (``testbed.plan.network_model``)
    payloads: float = derived(1.0)  # factor on the size of everything that is sent, as if the model were larger
    costs: dict[str, Row] = option(dict, form="costs")
    """{file: NAME.csv}: the costs of encoding, decoding and optimizer steps, as `testbed calibrate --costs` measures
    them. Rows that the file lacks are those of the reference machine."""

    @property
    def by_packet(self) -> bool:
        """Whether single packets are simulated, through models of the emulated links and ports."""
        return self.network in ("packets", "emulated")  # Plans of earlier releases have "emulated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exact:
    """The kernel of an exact run; other back ends ignore it."""

    # with 256 MiB, PyTorch does not fit for two nodes, and the run never ends; a thousand nodes get 96 GiB by default
    memory_bytes: int = option(0, unit="bytes", min=512 << 20, max=1024 << 30, absent=0, example="4 GiB")
    """Memory of the guest; the machine provides only the part that is used. By default 2 GiB and 96 MiB per node."""
    system_call_s: float = option(200e-9, unit="s", max=10.0)
    """Virtual time that a system call takes."""
    cpu: str = option("modelled", choices=("modelled", "measured", "none"))
    """Virtual time of computing besides device.step_time. modelled: codecs, sums, optimizers and messages take as long
    as in a simulated run (simulation.costs). measured: codecs, sums, copies and optimizers take the time for which this
    machine's processor works on them, and so do steps with device.pace: measured; messages take as long as with
    modelled. No two measured runs are equal. none: no time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """How the run reacts when a node is lost."""

    on_failure: str = option("abort", choices=("abort", "continue", "restart"))
    """abort: the run fails. continue: the other nodes go on. restart: all nodes go back to the last checkpoint."""
    max_restarts: int = option(3, max=10_000)
    """restart: largest number of restarts."""
    restart_delay_s: float = option(1.0, unit="s", key="delay")
    """restart: time from the loss to the restart."""
    on_nan: str = option("abort", choices=("abort", "skip", "ignore"))
    """When a gradient is not finite. abort: the run ends. skip: that worker contributes zeros to the round."""
    replicas: int = option(0, max=1)
    """continue: number of nodes that repeat every update of the global server, to take its place when it is lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """Checkpoints for `testbed run … --resume RUN`: the state of every node on which the next round depends."""

    every: int = option(0, max=10_000_000)
    """Rounds between two checkpoints; 0: none. Workers wait for each other at a checkpoint, whatever the algorithm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """The machines of one data centre."""

    label: str = option("", form="label")
    """Label of the data centre's machines in the cluster; by default dc=NAME."""
    machines: int = option(1, max=256)
    """Number of machines over which the data centre's nodes are spread; 0: all machines with the label."""
    bind: str = option("", form="address")
    """Address at which the nodes listen; by default the machine's address in the cluster."""
    advertise: str = option("", form="address")
    """Address at which other data centres reach the nodes, if it differs from bind, as behind NAT. Also write ports."""
    ports: tuple[int, int] | None = option(None, form="ports")
    """Ports at which the nodes listen, one port each in the order of `testbed plan`; by default the kernel chooses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Where `on: cluster` runs; other back ends ignore it."""

    address: str = "auto"
    """Address of the cluster's head (host:port). auto: the cluster of which this machine is a part. loopback: no
    cluster, but one process in place of each machine, each with its own address in 127.0.0.0/8."""
    data_centers: dict[str, Machines] = option(dict)
    """The machines of each data centre, where they differ from the defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Background:
    """Traffic from one data centre to another. Links serve it like the run's reliable traffic, ahead of best effort."""

    kind: str = required(choices=("constant", "on_off", "tcp"))
    """constant: datagrams at 'rate'. on_off: datagrams at 'rate' in bursts. tcp: connections under congestion
    control."""
    source: str = required(key="from", form="name")
    """Data centre that sends the traffic."""
    target: str = required(key="to", form="name")
    """Data centre that receives the traffic."""
    rate_bps: float = option(0.0, unit="bit/s", absent=0.0)
    """Rate of constant and on_off traffic, counted in whole Ethernet frames."""
    on_s: float = option(1.0, unit="s", min=1e-6)
    """Mean length of a burst of on_off traffic (exponentially distributed)."""
    off_s: float = option(1.0, unit="s", min=1e-6)
    """Mean pause between two bursts."""
    streams: int = option(0, min=1, max=64, absent=0)
    """Number of connections of tcp traffic; by default transport.parallel_streams."""
    start_s: float = option(0.0, unit="s")
    """Time since the start of training at which the traffic begins."""
    stop_s: float = option(float("inf"), unit="s", min=1e-6, absent=float("inf"))
    """Time since the start of training at which the traffic ends; by default it lasts as long as the run."""
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
