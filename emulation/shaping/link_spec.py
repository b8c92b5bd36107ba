"""A planned link and the place where it is shaped, in the form that processes of an emulation exchange."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Self

import msgspec

from emulation.shaping.path import Path
from testbed.plan.model import LinkPlan

DelayMethod = Literal["netem", "nfqueue"]


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface; ``namespace`` is the path of its network namespace."""

    namespace: str
    interface: str


@dataclass(frozen=True, slots=True)
class LinkSpec:
    """A planned WAN link and the place where it is shaped, as the helper processes need it.

    egress   interface with its rate and queue
    ingress  interface where its delay and impairments are made
    row      its row of the shared table
    queue    its NFQUEUE number in the namespace where packets arrive
    seed     seed of the fates of its packets
    """

    plan: LinkPlan
    method: DelayMethod
    egress: Interface
    ingress: Interface
    row: int
    queue: int
    seed: str

    @property
    def name(self) -> str:
        return self.plan.name

    @property
    def path(self) -> Path:
        """Delay and impairments, as planned."""
        plan = self.plan
        return Path(
            plan.delay_s, plan.loss, plan.loss_burst_packets, plan.corruption, plan.duplication, plan.reordering
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the specification as JSON-ready values, for a helper process."""
        content: dict[str, Any] = msgspec.to_builtins(self)
        return content

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Self:
        """Inverse of ``to_dict``."""
        return msgspec.convert(content, cls)
