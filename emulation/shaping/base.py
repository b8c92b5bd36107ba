"""One interface to all shaped links, however their rates and delays are made: apply, change live, read back.

A change never recreates a queue: it modifies parameters in place, so waiting packets stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from emulation.shaping import traffic_control as tc
from emulation.shaping.delay_makers import DELAY_MAKERS, Namespace
from emulation.shaping.link_spec import LinkSpec
from emulation.shaping.path import Path
from emulation.shaping.table import DelayField, DelayTable, change_path, set_up
from testbed.errors import NetworkMismatch
from testbed.plan.shaping import FRAME_BYTES

_TOLERANCE = 1e-6  # for delays (s), shares and burst lengths (packets): settings have 32 bits, or nine digits


@dataclass(frozen=True, slots=True)
class LinkCounters:
    """Counters of a link: bytes and packets sent, packets dropped at its full queue or lost later, bytes queued now."""

    configured_bps: float
    sent_bytes: int
    dropped_packets: int
    lost_packets: int
    backlog_bytes: int
    sent_packets: int = 0


class Shaper:
    """Changes and reads the links of ``specs``, through one netlink socket per namespace. Usable in any process."""

    def __init__(self, specs: Sequence[LinkSpec], table: DelayTable) -> None:
        self.specs = {spec.name: spec for spec in specs}
        self._table = table
        maker = DELAY_MAKERS[specs[0].method if specs else "netem"]  # of all links
        namespaces = {spec.egress.namespace for spec in specs}
        if not maker.is_process:
            namespaces |= {spec.ingress.namespace for spec in specs}
        self._places = {namespace: Namespace(namespace) for namespace in sorted(namespaces)}
        self.delays = maker(table, self._places)

    def set_rate(self, link: str, rate_bps: float) -> None:
        """Set a link's rate, at least ``traffic_control.LOWEST_RATE_BPS``."""
        spec = self.specs[link]
        place = self._places[spec.egress.namespace]
        tc.change_rate(place.link, place.index[spec.egress.interface], rate_bps)

    def set_up(self, link: str, up: bool) -> None:
        """Take a link up or down. A link that is down loses all packets at its far end; delayed ones still arrive.

        The link keeps its delay and impairments, which may change meanwhile.
        """
        spec = self.specs[link]
        self.delays.follow(spec, set_up(self._table.row(spec.row), up))

    def path_of(self, link: str) -> Path:
        """Return the present delay and impairments of a link."""
        return self.delays.path_of(self.specs[link])

    def is_up(self, link: str) -> bool:
        """Return whether the link is up, whichever process has changed it last."""
        return not self._table.row(self.specs[link].row)[DelayField.DOWN]

    def set_path(self, link: str, **values: float) -> None:
        """Set fields of a link's ``Path``; other fields, also those changed by other processes, stay as they are."""
        spec = self.specs[link]
        self.delays.follow(spec, change_path(self._table.row(spec.row), **values))

    def apply_plan(self) -> None:
        """Set delays and impairments as planned. The rates were set when the queues were made."""
        for spec in self.specs.values():
            self.set_path(spec.name, **asdict(spec.path))

    def verify(self, channels: int = 0) -> None:
        """Read rates, queues, delays and impairments back. Raise ``NetworkMismatch`` if they differ from the plan.

        ``channels``: number of best-effort channels, each of which has its own queue on every link.
        """
        for spec in self.specs.values():
            place = self._places[spec.egress.namespace]
            index = place.index[spec.egress.interface]
            rate = tc.read_rate_bps(place.link, index)
            limits = tc.read_queue_limits(place.link, index)
            wanted = max(spec.plan.rate_bps, tc.LOWEST_RATE_BPS)
            limit = max(spec.plan.queue_bytes, FRAME_BYTES)
            if abs(rate - wanted) > max(8.0, wanted * 1e-6) or limits != [limit] * (1 + channels):
                raise NetworkMismatch(
                    f"{spec.name}: the kernel has {rate:g} bit/s and queues of {limits} bytes,"
                    f" the plan says {spec.plan.rate_bps:g} bit/s and {1 + channels} of {limit} bytes"
                )
        for spec in self.specs.values():
            self._verify_path(spec)

    def _verify_path(self, spec: LinkSpec) -> None:
        wanted = asdict(self.delays.as_made(spec.path))
        found = asdict(self.path_of(spec.name))
        wrong = [name for name, value in wanted.items() if abs(found[name] - value) > _TOLERANCE * max(1.0, value)]
        if wrong:
            told = (f"{name} of {found[name]:g}, the plan says {wanted[name]:g}" for name in wrong)
            raise NetworkMismatch(f"{spec.name}: the emulated link has {'; '.join(told)}")

    def counters(self) -> dict[str, LinkCounters]:
        """Return the counters of all links since they were made, with one netlink dump of queues per namespace."""
        queues = {namespace: tc.read_queues(place.link) for namespace, place in self._places.items()}
        found = {}
        lost = self.delays.lost_packets([*self.specs.values()])
        for spec in self.specs.values():
            place = self._places[spec.egress.namespace]
            index = place.index[spec.egress.interface]
            queue = queues[spec.egress.namespace][index]
            rate = tc.read_rate_bps(place.link, index)
            found[spec.name] = LinkCounters(
                rate, queue.sent_bytes, queue.dropped_packets, lost[spec.name], queue.backlog_bytes, queue.sent_packets
            )
        return found

    def close(self) -> None:
        """Close the sockets; links stay as they are."""
        for place in self._places.values():
            place.link.close()
