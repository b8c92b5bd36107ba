"""The reply to a push or a pull: the value of a key, and the servers' instructions for the child."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from torch import Tensor

PULL_ROUND = -1  # the round of a plain pull and of its reply: they belong to no round of training


class ReplyControl(msgspec.Struct):
    """The instructions that a server sends with a value, as metadata of the message.

    last      whether the run ends with this round
    waited_s  seconds for which this child's contribution waited for others' at servers and relays, over all tiers
    steps     local steps of the next round, by worker; a worker that is not named keeps its number
    pace      staleness and share of all workers from now on (``policy.events.Pace``); ``None``: no change
    """

    last: bool = False
    waited_s: float = 0.0
    steps: Mapping[str, int] = msgspec.field(default_factory=dict)
    pace: Sequence[float] | None = None

    def to_meta(self) -> dict[str, Any]:
        """Return the metadata. It has the same size in all plain rounds, so headers are equal in every world."""
        meta: dict[str, Any] = {"waited_s": float(self.waited_s)}
        if self.last:
            meta["last"] = self.last
        if self.steps:
            meta["steps"] = dict(self.steps)
        if self.pace is not None:
            meta["pace"] = list(self.pace)
        return meta


class Value(msgspec.Struct):
    """The value of a key after a round, and the control that came with it.

    arrived_s  when the child had decoded it
    """

    tensor: Tensor
    control: ReplyControl = msgspec.field(default_factory=ReplyControl)
    arrived_s: float = 0.0


def merge_controls(controls: Sequence[ReplyControl]) -> ReplyControl:
    """Merge the controls of several replies: the longest wait, the steps of all workers, and the newest pace."""
    steps = {worker: count for each in controls for worker, count in each.steps.items()}
    last = any(each.last for each in controls)
    waited_s = max((each.waited_s for each in controls), default=0.0)
    paces = [each.pace for each in controls if each.pace is not None]
    return ReplyControl(last, waited_s, steps, paces[-1] if paces else None)
