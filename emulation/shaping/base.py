"""One interface to all shaped links, whichever way their rates and delays are made: apply, change live, read back.

A change never recreates a queue: it modifies parameters in place, so waiting packets stay.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from emulation.namespaces import inside
from emulation.netlink import NetlinkSocket
from emulation.shaping import traffic_control as tc
from emulation.shaping.path import Path, as_netem, change_seed
from emulation.shaping.table import DelayField, DelayTable, change_path, path_in, set_up
from testbed.errors import NetworkMismatch
from testbed.plan.shaping import FRAME_BYTES

DelayMethod = Literal["netem", "nfqueue"]
# netem holds packets while they are delayed. Its default of 1000 packets would drop all beyond 120 ms at 100 Mbit/s.
NETEM_LIMIT_PACKETS = 200_000
_TOLERANCE = 1e-6  # of delays in seconds, shares and packets of a burst: settings have 32 bits, or nine digits


@dataclass(frozen=True, slots=True)
class LinkSpec:
    """A directed WAN link as the helper processes need it: where it is shaped, and the plan's values before training.

    ``row``: its row of the shared table. ``queue``: its NFQUEUE number in the namespace where packets arrive.
    """

    name: str
    method: DelayMethod
    rate_namespace: str
    rate_interface: str
    delay_namespace: str
    delay_interface: str
    row: int
    queue: int
    seed: str
    rate_bps: float
    queue_bytes: int
    delay_s: float
    loss: float
    loss_burst: float = 1.0
    corruption: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0

    @property
    def path(self) -> Path:
        """Delay and impairments, as planned."""
        return Path(self.delay_s, self.loss, self.loss_burst, self.corruption, self.duplication, self.reordering)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class LinkCounters:
    """Counters of a link: sent, packets dropped by its full queue, packets lost on the way, bytes queued now."""

    configured_bps: float
    sent_bytes: int
    dropped_packets: int
    lost_packets: int
    backlog_bytes: int
    sent_packets: int = 0


class _Namespace:
    """A netlink socket in one namespace, and the interfaces there by name."""

    def __init__(self, namespace: str) -> None:
        with inside(namespace):
            self.link = NetlinkSocket()
            self.index = {name: number for number, name in socket.if_nameindex()}


class Shaper:
    """Changes and reads the links of ``specs``, through one netlink socket per namespace. Usable in any process."""

    def __init__(self, specs: Sequence[LinkSpec], table: DelayTable) -> None:
        self.specs = {spec.name: spec for spec in specs}
        self._table = table
        namespaces = {spec.rate_namespace for spec in specs}
        namespaces |= {spec.delay_namespace for spec in specs if spec.method == "netem"}
        self._places = {namespace: _Namespace(namespace) for namespace in sorted(namespaces)}

    def set_rate(self, link: str, rate_bps: float) -> None:
        """Set a link's rate, at least ``traffic_control.LOWEST_RATE_BPS``."""
        spec = self.specs[link]
        place = self._places[spec.rate_namespace]
        tc.change_rate(place.link, place.index[spec.rate_interface], rate_bps)

    def set_up(self, link: str, up: bool) -> None:
        """Take a link up or down. One that is down loses all packets at its far end; delayed ones still arrive.

        It keeps its delay and impairments, which may change meanwhile.
        """
        spec = self.specs[link]
        self._apply(spec, set_up(self._table.row(spec.row), up))

    def path_of(self, link: str) -> Path:
        """Return the present delay and impairments of a link whose delay is here: with netem, as the kernel reports
        them, else as its delay line reads them."""
        spec = self.specs[link]
        if spec.method == "netem":
            place = self._places[spec.delay_namespace]
            path = tc.read_netem_paths(place.link)[place.index[spec.delay_interface]]
        else:
            path = path_in(self._table.row(spec.row))
        return path

    def is_up(self, link: str) -> bool:
        """Return whether the link is up, whichever process has changed it last."""
        return not self._table.row(self.specs[link].row)[DelayField.DOWN]

    def set_path(self, link: str, **values: float) -> None:
        """Set fields of a link's ``Path``; those that another process has changed stay as they are."""
        spec = self.specs[link]
        self._apply(spec, change_path(self._table.row(spec.row), **values))

    def _apply(self, spec: LinkSpec, change: int) -> None:
        """Make netem do what the table says; a delay line reads that itself."""
        if spec.method == "netem":
            place, path = self._places[spec.delay_namespace], path_in(self._table.row(spec.row))
            seed = change_seed(spec.seed, change)
            tc.change_netem(place.link, place.index[spec.delay_interface], path, NETEM_LIMIT_PACKETS, seed)

    def apply_plan(self) -> None:
        """Set delays and impairments as planned. Rates are in place since the queues were made."""
        for spec in self.specs.values():
            self.set_path(spec.name, **asdict(spec.path))

    def verify(self, channels: int = 0) -> None:
        """Read rates, queues, delays and impairments back. Raise ``NetworkMismatch`` if they differ from the plan.

        ``channels``: best-effort channels, each of which has a queue of its own on every link.
        """
        for spec in self.specs.values():
            place = self._places[spec.rate_namespace]
            index = place.index[spec.rate_interface]
            rate, limits = tc.read_rate_bps(place.link, index), tc.read_queue_limits(place.link, index)
            wanted, limit = max(spec.rate_bps, tc.LOWEST_RATE_BPS), max(spec.queue_bytes, FRAME_BYTES)
            if abs(rate - wanted) > max(8.0, wanted * 1e-6) or limits != [limit] * (1 + channels):
                raise NetworkMismatch(
                    f"{spec.name}: the kernel has {rate:g} bit/s and queues of {limits} bytes,"
                    f" the plan says {spec.rate_bps:g} bit/s and {1 + channels} of {limit} bytes"
                )
        for spec in self.specs.values():
            self._verify_path(spec)

    def _verify_path(self, spec: LinkSpec) -> None:
        wanted = asdict(as_netem(spec.path) if spec.method == "netem" else spec.path)
        found = asdict(self.path_of(spec.name))
        wrong = [name for name, value in wanted.items() if abs(found[name] - value) > _TOLERANCE * max(1.0, value)]
        if wrong:
            told = (f"{name} of {found[name]:g}, the plan says {wanted[name]:g}" for name in wrong)
            raise NetworkMismatch(f"{spec.name}: the emulated link has {'; '.join(told)}")

    def counters(self) -> dict[str, LinkCounters]:
        """Counters of all links since they were made, by one netlink dump per namespace."""
        queues = {namespace: tc.read_queues(place.link) for namespace, place in self._places.items()}
        found = {}
        lost = self._lost()
        for spec in self.specs.values():
            place = self._places[spec.rate_namespace]
            index = place.index[spec.rate_interface]
            queue, rate = queues[spec.rate_namespace][index], tc.read_rate_bps(place.link, index)
            found[spec.name] = LinkCounters(
                rate, queue.sent_bytes, queue.dropped_packets, lost[spec.name], queue.backlog_bytes, queue.sent_packets
            )
        return found

    def _lost(self) -> dict[str, int]:
        """Return what each link has lost on the way: by its netem, or by its delay line as the table has it."""
        lost = {spec.name: int(self._table.row(spec.row)[DelayField.LOST]) for spec in self.specs.values()}
        netems = [spec for spec in self.specs.values() if spec.method == "netem"]
        for namespace in {spec.delay_namespace for spec in netems}:
            place = self._places[namespace]
            drops = tc.read_netem_drops(place.link)
            here = [spec for spec in netems if spec.delay_namespace == namespace]
            lost |= {spec.name: drops[place.index[spec.delay_interface]] for spec in here}
        return lost

    def close(self) -> None:
        """Close the sockets; links stay as they are."""
        for place in self._places.values():
            place.link.close()
