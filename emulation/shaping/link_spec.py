"""A planned link, and where it is shaped: what the processes of an emulation tell each other of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Self

import msgspec

from emulation.shaping.path import Path
from testbed.plan.model import LinkPlan

DelayMethod = Literal["netem", "nfqueue"]


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface; ``namespace`` is the path of that which it is in."""

    namespace: str
    interface: str


@dataclass(frozen=True, slots=True)
class LinkSpec:
    """A planned WAN link, and where it is shaped, as the helper processes need it.

    egress   where its rate and queue are
    ingress  where its delay and impairments are made
    row      of the shared table
    queue    its NFQUEUE number in the namespace where packets arrive
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
        """Return it as a helper process gets it, in JSON."""
        content: dict[str, Any] = msgspec.to_builtins(self)
        return content

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Self:
        """Inverse of ``to_dict``."""
        return msgspec.convert(content, cls)
