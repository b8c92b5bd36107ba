"""Makers of the delays and impairments of emulated links: netem, or a delay line if the kernel lacks netem.

Any process may change a row of the shared table. A delay line checks its row whenever packets arrive; netem must be
changed through the kernel.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from typing import ClassVar

from emulation.namespaces import inside
from emulation.netlink import NetlinkSocket
from emulation.shaping import traffic_control as tc
from emulation.shaping.link_spec import DelayMethod, LinkSpec
from emulation.shaping.path import Path, as_netem, change_seed
from emulation.shaping.table import DelayField, DelayTable, path_in

# netem holds packets while they are delayed. Its default of 1000 packets would drop all beyond 120 ms at 100 Mbit/s.
NETEM_LIMIT_PACKETS = 200_000


class Namespace:
    """A netlink socket in one namespace, and the interfaces there by name."""

    def __init__(self, namespace: str) -> None:
        with inside(namespace):
            self.link = NetlinkSocket()
            self.index = {name: number for number, name in socket.if_nameindex()}


class DelayMaker:
    """Makes delays with a delay line; base class of other makers. ``places``: the namespaces by path.

    needs_wires           whether packets are delayed at a switch in the middle of each cable
    is_process            whether separate processes delay packets, which rules of the packet filter pass to them
    duplicates            whether packets can be duplicated
    ends_bursts           whether a change of the delay ends a burst of losses
    ceiling_bps_per_core  total rate of all links, per core, above which links in use at once do not reach their rates;
                          measured by ``testbed bench links --links 1,12`` at doubling rates
    """

    needs_wires: ClassVar[bool] = False
    is_process: ClassVar[bool] = True
    duplicates: ClassVar[bool] = False
    ends_bursts: ClassVar[bool] = False
    ceiling_bps_per_core: ClassVar[float] = 125e6

    def __init__(self, table: DelayTable, places: Mapping[str, Namespace]) -> None:
        self._table = table
        self._places = places

    def follow(self, spec: LinkSpec, change: int) -> None:
        """Apply the settings in the link's row of the table, as of change number ``change``."""

    def path_of(self, spec: LinkSpec) -> Path:
        """Return the present delay and impairments of a link."""
        return path_in(self._table.row(spec.row))

    @staticmethod
    def as_made(path: Path) -> Path:
        """Return the path that is really made of a planned path."""
        return path

    def lost_packets(self, specs: Sequence[LinkSpec]) -> dict[str, int]:
        """Return how many packets each link has lost on the way."""
        return {spec.name: int(self._table.row(spec.row)[DelayField.LOST]) for spec in specs}


class Netem(DelayMaker):
    needs_wires = True
    is_process = False
    duplicates = True
    ends_bursts = True
    ceiling_bps_per_core = 500e6

    def follow(self, spec: LinkSpec, change: int) -> None:
        place = self._places[spec.ingress.namespace]
        seed = change_seed(spec.seed, change)
        index = place.index[spec.ingress.interface]
        path = path_in(self._table.row(spec.row))
        tc.change_netem(place.link, index, path, NETEM_LIMIT_PACKETS, seed)

    def path_of(self, spec: LinkSpec) -> Path:
        """Return the present delay and impairments as the kernel reports them."""
        place = self._places[spec.ingress.namespace]
        return tc.read_netem_paths(place.link)[place.index[spec.ingress.interface]]

    @staticmethod
    def as_made(path: Path) -> Path:
        return as_netem(path)

    def lost_packets(self, specs: Sequence[LinkSpec]) -> dict[str, int]:
        namespaces = {spec.ingress.namespace for spec in specs}
        drops = {namespace: tc.read_netem_drops(self._places[namespace].link) for namespace in namespaces}
        lost = {}
        for spec in specs:
            index = self._places[spec.ingress.namespace].index[spec.ingress.interface]
            lost[spec.name] = drops[spec.ingress.namespace][index]
        return lost


DELAY_MAKERS: dict[DelayMethod, type[DelayMaker]] = {"netem": Netem, "nfqueue": DelayMaker}
