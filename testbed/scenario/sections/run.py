"""How the scenario is run: the sections of back ends, sockets, deadlines, recovery and checkpoints."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Any

from testbed import units
from testbed.scenario.reading.quantities import (
    BOOLEAN,
    DELAY,
    DURATION,
    INSTANT,
    SIZE,
    TEXT,
    FieldType,
    integer,
    one_of,
    quantity,
    refuse,
    text_of,
)
from testbed.scenario.reading.section import Section
from testbed.scenario.sections.tables import COSTS

BACK_ENDS = ("emulate", "simulate", "local", "exact", "cluster")
# with 256 MiB two nodes find no room for PyTorch, and no end; the default for a thousand nodes is 96 GiB
_GUEST_MEMORY = quantity(units.parse_size, units.format_size, "512 MiB", "1024 GiB", "4 GiB")


class RunSection(Section):
    """How the scenario is run."""

    on: Annotated[str, one_of(*BACK_ENDS)] = "emulate"
    """emulate: Mininet, real processes. simulate: virtual time. local: real processes on loopback, without a WAN.
    exact: as emulate, in a kernel of its own in virtual time, so that results do not depend on the machine's load.
    cluster: deployed on machines, one or more for each data centre (`cluster`), over their own network."""


class Transport(Section):
    """Socket options, set for every node and recorded."""

    congestion_control: Annotated[str, one_of("cubic", "reno", "bbr")] = "cubic"
    """TCP's congestion control."""
    slow_start_after_idle: Annotated[bool, BOOLEAN] = False
    """Whether TCP begins with a small window again after a pause (the kernel's own default is yes)."""
    unsent_limit: Annotated[int, SIZE] = 131_072
    """Bytes that may wait in a socket unsent; small, so that a later message of higher priority can overtake."""
    mac: Annotated[str, one_of("aes-gmac", "hmac-sha256", "crc32c", "none")] = "aes-gmac"
    """How frames on a network are protected; hmac-sha256: where a processor lacks AES; crc32c, none: to see what a code
    costs. Frames in shared memory carry no code."""
    tls: Annotated[bool, BOOLEAN] = False
    """Whether connections between nodes are encrypted (TLS 1.3, with a certificate made for the run)."""
    send_buffer: Annotated[int | None, SIZE] = None
    """The most data that a socket holds; by default enough for the longest path."""
    receive_buffer: Annotated[int | None, SIZE] = None
    """The largest window that a socket offers: one connection gets no more than this in a round trip."""
    initial_window: Annotated[int | None, integer(1, 1000)] = None
    """Packets that TCP sends before the first acknowledgement (the kernel's own default is 10)."""
    shared_memory: Annotated[bool, BOOLEAN] = True
    """Whether nodes of a data centre exchange bytes through memory, on `local`, on one machine of a `cluster`, and
    on `emulate` if `lan` is unshaped (above 2 Gbit/s, delay 0)."""
    parallel_streams: Annotated[int, integer(1, 64)] = 1
    """Connections that bulk background traffic and measuring tools open between two data centres."""


_LONGEST_RUN = quantity(units.parse_duration, units.format_duration, "1 us", "8760 h", "2 h")


class TimeoutChanges(Section):
    """Deadlines that differ from the ones derived from rates, delays and sizes (see `testbed plan`).

    One that is written here may be longer than what is allowed of derived ones: dead_after 5 min, rendezvous and
    tcp_user_timeout 10 min, step_deadline 72 h, run_deadline 720 h.
    """

    heartbeat: Annotated[float | None, DURATION] = None
    """Time between two heartbeats."""
    dead_after: Annotated[float | None, DURATION] = None
    """Time without a heartbeat after which a node counts as lost, more than three heartbeats."""
    tcp_user_timeout: Annotated[float | None, DURATION] = None
    """Time without an acknowledgement after which TCP closes a connection."""
    step_deadline: Annotated[float | None, DURATION] = None
    """The longest wait inside a round."""
    run_deadline: Annotated[float | None, _LONGEST_RUN] = None
    """The longest run."""
    rendezvous: Annotated[float | None, DURATION] = None
    """The longest wait for all nodes to register."""


class SimulationSection(Section):
    """How the virtual world runs; other back ends ignore it."""

    fold: Annotated[bool, BOOLEAN] = True
    """Let one coroutine run all workers of a data centre that wait for each other, where results stay the same."""
    events: Annotated[str, one_of("auto", "full", "brief")] = "auto"
    """What nodes log. brief: workers log their rounds only, and no node what happens inside a LAN. auto: brief for
    runs of very many nodes."""
    network: Annotated[str, one_of("auto", "packets", "flows", "ideal", "tcp", "emulated")] = "auto"
    """packets: TCP segment by segment over emulated links, which predicts best. flows: rates and a model of TCP's
    windows, for very large networks. auto: packets where at most a million of them are predicted for the whole run,
    and flows with checkpoints. ideal: every byte of a link carries payload, flows share links equally, and connections
    have no start-up: for closed forms and bounds. tcp and emulated are former names of flows and packets."""
    costs: COSTS = {}
    """{file: NAME.csv}: what encoding, decoding and optimizer steps cost, as `testbed calibrate --costs` measures it.
    Rows that it lacks are those of the reference machine."""


class ExactSection(Section):
    """The kernel of an exact run; other back ends ignore it."""

    memory: Annotated[int | None, _GUEST_MEMORY] = None
    """Memory of the guest, of which the machine gives what is used; by default 2 GiB, and 96 MiB a node."""
    system_call: Annotated[float, DELAY] = 200e-9
    """Virtual time that a system call takes."""
    cpu: Annotated[str, one_of("modelled", "measured", "none")] = "modelled"
    """What computing takes beside device.step_time. modelled: what a simulated run charges for codecs, sums, optimizers
    and messages (simulation.costs). measured: codecs, sums, copies and optimizers take the time that this machine's
    processor works on them, and so do steps with device.pace: measured; messages as modelled; no two runs are equal
    then. none: nothing."""


class Recovery(Section):
    """What is done when a node is lost."""

    on_failure: Annotated[str, one_of("abort", "continue", "restart")] = "abort"
    """abort: the run fails. continue: the others go on. restart: all go back to the last checkpoint."""
    max_restarts: Annotated[int, integer(0, 10_000)] = 3
    """restart: how often at most."""
    delay: Annotated[float, INSTANT] = 1.0
    """restart: time from the loss to the restart."""
    replicas: Annotated[int, integer(0, 1)] = 0
    """continue: nodes that repeat every update of the global server, and take its place when it is lost."""
    on_nan: Annotated[str, one_of("abort", "skip", "ignore")] = "abort"
    """When a gradient is not finite. abort: the run ends. skip: that worker contributes zeros to the round."""


class Checkpoints(Section):
    """What is kept for `testbed run … --resume RUN`: the state of every node that the next round depends on."""

    every: Annotated[int, integer(0, 10_000_000)] = 0
    """Rounds between two checkpoints; 0: none. Workers wait for each other at a checkpoint, whatever the algorithm."""


_PORTS = re.compile(r"(\d{1,5})-(\d{1,5})")
_LABEL = re.compile(r"[^\s=]+=[^\s=]+")


def _ports(value: Any) -> tuple[int, int]:
    if isinstance(value, tuple):
        return value
    text = text_of(value)
    found = _PORTS.fullmatch(text)
    first, last = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1024 <= first <= last <= 65535:
        raise refuse(f"'{text}' is no range of ports from 1024 to 65535", "write e.g. '20000-20099'")
    return first, last


def _address(value: Any) -> str:
    text = text_of(value)
    try:
        return str(ipaddress.IPv4Address(text)) if text else ""
    except ValueError as error:
        raise refuse(f"'{text}' is no IPv4 address", "write e.g. '203.0.113.7'") from error


def _label(value: Any) -> str:
    text = text_of(value)
    if text and not _LABEL.fullmatch(text):
        raise refuse(f"'{text}' is no label", "write 'key=value', as in `ray start --labels key=value`")
    return text


PORTS = FieldType(_ports, {"type": "string", "examples": ["20000-20099"]}, lambda ports: f"{ports[0]}-{ports[1]}")
ADDRESS = FieldType(_address, {"type": "string", "examples": ["203.0.113.7"]})
LABEL = FieldType(_label, {"type": "string", "examples": ["dc=tokyo"]})


class ClusterSite(Section):
    """The machines of one data centre."""

    label: Annotated[str, LABEL] = ""
    """Label of its machines in the cluster; by default dc=NAME."""
    machines: Annotated[int, integer(0, 256)] = 1
    """How many machines its nodes are spread over; 0: all that have the label."""
    bind: Annotated[str, ADDRESS] = ""
    """Address at which its nodes listen; by default that of the machine in the cluster."""
    advertise: Annotated[str, ADDRESS] = ""
    """Address at which all others reach its nodes, where it differs from bind: behind NAT. Also write ports."""
    ports: Annotated[tuple[int, int] | None, PORTS] = None
    """Ports at which its nodes listen, one each in the order of `testbed plan`; by default the kernel chooses."""


class ClusterSection(Section):
    """Where `on: cluster` runs; other back ends ignore it."""

    address: Annotated[str, TEXT] = "auto"
    """Address of the cluster's head (host:port); auto: the cluster that this machine is part of; loopback: no cluster,
    but a process for each machine, with an address of its own in 127.0.0.0/8."""
    data_centers: dict[str, ClusterSite] = {}
    """What differs from the defaults, by data centre."""
