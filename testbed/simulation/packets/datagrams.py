"""Best-effort messages over packets: datagrams of a message leave one after another, and all have to arrive."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from testbed.simulation.best_effort import Item
from testbed.simulation.envelope import Envelope
from testbed.simulation.packets.link import PacketPath


class PacketCarrier:
    """Carries messages from one node to another. ``deliver``: what has arrived."""

    def __init__(self, path: PacketPath, deliver: Callable[[Envelope], None]) -> None:
        self._path, self._deliver = path, deliver

    def carry(self, item: Item, channel: int) -> None:
        """Send a message in its datagrams."""
        size_bytes, larger = divmod(item.size_bytes, item.datagrams)
        arrive = partial(self._arrived, item, missing=[item.datagrams])
        for number in range(item.datagrams):
            self._path.send(size_bytes + (number < larger), arrive, None, channel)

    def _arrived(self, item: Item, _: Any, missing: list[int]) -> None:
        missing[0] -= 1
        if not missing[0]:
            self._deliver(item.envelope)
