"""An agent's part of an emulated network: made, measured and followed as the driver asks, by the key ``do``.

network   bring the part up; answers with what the machine can do    contact   wait until paths to other machines work
links     measure what begins here                                   flood     measure rates together with another agent
monitor   begin to sample links                                      ended     end helpers; answers with counters
losses    packets that links from other machines have lost here
lost      what others have counted so of links that begin here, for the monitor (no answer)
follow    start the traces, or correct when training started (no answer)
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.cluster.control import Content
from testbed.errors import CapabilityError, RunFailed
from testbed.plan.model import NodePlan, Plan

if TYPE_CHECKING:
    from emulation.network import Emulation
    from emulation.shaping.base import Shaper

_CHECK_INTERVAL_S = 0.5


class NetworkPart:
    """See the module's docstring.

    events   directory of the helpers' logs
    outside  path of the machine's own network namespace, with the underlay
    """

    def __init__(self, plan: Plan, events: Path, outside: str) -> None:
        self._plan, self._events, self._outside = plan, events, outside
        self._network: Emulation | None = None
        self._epoch_s = 0.0
        self._following = False
        self._check_due_s = 0.0
        self.questions: dict[str, Callable[[Content], Any]] = {
            "network": self._bring_up, "flood": self._flood, "ended": self._ended,
            "contact": lambda _: self.network.contact(),
            "links": lambda _: [asdict(each) for each in self.network.measure_here()],
            "monitor": lambda _: self.network.helpers.start_monitor(self._epoch_s),
            "losses": lambda _: self._shaper.lost_packets(),
        }  # fmt: skip

    @property
    def network(self) -> Emulation:
        """The part, when it is up."""
        assert self._network is not None, "the network is not up"
        return self._network

    @property
    def realtime(self) -> bool:
        """Whether this machine lets event loops of nodes run before other programs."""
        return self.network.capabilities.realtime

    def enter(self, node: NodePlan) -> None:
        """Enter a node's network namespace, in the node's own process."""
        self.network.enter(node.name)

    def close(self) -> None:
        if self._network is not None:
            self._network.stop()
            self._network = None

    def check(self) -> None:
        """Raise ``RunFailed`` if a helper has ended. Looks twice a second."""
        now_s = time.monotonic()
        if self._following and now_s >= self._check_due_s:
            self._check_due_s = now_s + _CHECK_INTERVAL_S
            self.network.helpers.check()

    def follow(self, asked: Content) -> None:
        """Training has started at ``start_s`` of this machine's clock, after ``trained_s`` before a checkpoint."""
        helpers = self.network.helpers
        if self._following:
            helpers.correct(asked["start_s"], asked["trained_s"])
        else:
            helpers.begin(self._epoch_s, asked["start_s"], asked["trained_s"])
            self._following = True

    def take_losses(self, asked: Content) -> None:
        for link, packets in asked["links"].items():
            self._shaper.set_lost(link, packets)

    @property
    def _shaper(self) -> Shaper:
        assert self.network.shaper is not None
        return self.network.shaper

    def _bring_up(self, asked: Content) -> dict[str, Any]:
        from emulation.division import MachinePart
        from emulation.network import Emulation, no_record
        from emulation.probe import module_cure, probe

        capabilities = probe()
        capabilities.require_emulation()
        if not capabilities.vxlan:
            cure = module_cure("vxlan")
            raise CapabilityError(f"this machine cannot make tunnels to others: no vxlan. Cure: {cure}")
        self._epoch_s = asked["epoch_s"]
        part = MachinePart(**asked["part"], outside=self._outside)
        network = Emulation(self._plan, capabilities, no_record, self._events, part)
        try:
            self._network = network.__enter__()
        except (PermissionError, RunFailed) as error:
            cure = "run the cluster's Ray as root, as tunnels are made in the machine's own network namespace"
            if "not permitted" in str(error):
                raise CapabilityError(f"{error}. Cure: {cure}") from error
            raise
        about = {"delay_method": capabilities.delay_method(), **capabilities.to_dict()}
        return {**about, "bring_up_s": round(network.bring_up_s, 3)}

    def _flood(self, asked: Content) -> list[dict[str, Any]]:
        return [asdict(each) for each in self.network.measure_with_others(set(asked["links"]), asked["wait_s"])]

    def _ended(self, _: Content) -> dict[str, dict[str, int]]:
        self._following = False
        self.network.helpers.finish()
        sent = {name: link.sent_packets for name, link in self._shaper.counters().items()}
        return {"sent": sent, "arrived": self._shaper.arrived_packets()}
