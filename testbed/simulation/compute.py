"""How long work takes in virtual time. Constants are calibrated against real runs; printed with every result."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.plan.pace import Pacer
from testbed.world import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeModel:
    """Rates and fixed costs of a node's processor.

    memory_bytes_per_s   sums and optimizers are bound by memory: ``Work.size_bytes`` divided by this
    work_overhead_s      of each piece of work that is not a training step
    message_cost_s       from the last byte's arrival to the message's hand-over: wake-up, parsing, verification.
                         Messages of one receiver take turns.
    message_bytes_per_s  authentication of the stream (HMAC-SHA256), overlapped with the network: caps a node's port
    """

    memory_bytes_per_s: float = 4e9
    work_overhead_s: float = 5e-6
    message_cost_s: float = 60e-6
    message_bytes_per_s: float = 1.8e9

    def duration_s(self, work: Work, pacer: Pacer, now_s: float) -> float:
        """Modelled time of ``work``, begun at ``now_s``. A ``measured`` device has ``step_time_s`` as its model."""
        if work.kind == "step":
            return pacer.duration_s(work.steps, now_s)
        if work.kind == "script":
            return 0.0
        return self.work_overhead_s + work.size_bytes / self.memory_bytes_per_s
