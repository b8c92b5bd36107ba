"""The duration of computation in virtual time, in simulated and in exact runs. This module does not import torch.

The constants are printed in the ``model`` event of every simulated run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from testbed.costs import (
    CODING,
    COPY,
    MESSAGE,
    MESSAGE_BYTES_PER_S,
    MESSAGE_S,
    USER_CODE,
    Cost,
    Costs,
    Row,
    reference_costs,
)
from testbed.plan.model import Plan
from testbed.plan.pace import Pacer
from testbed.world import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeModel:
    """Rates and fixed costs of a node's processor. Defaults are calibrated against real runs of this project.

    memory_bytes_per_s   memory bandwidth, which limits sums: without a row in ``costs``, they take ``Work.size_bytes``
                         divided by it
    work_overhead_s      fixed time of each piece of work other than a training step
    message_cost_s       time from the arrival of a message's last byte until the role has it: wake-up, parsing,
                         verification. A receiver reads its messages one after another.
    message_bytes_per_s  rate of reading and authenticating the stream (AES-GMAC), overlapped with the transfer; it
                         limits a node's port. The row ``message`` of a table of costs sets this rate and the cost
    costs                measured durations of codecs and optimizer steps, by row; ``None``: codecs take no time, and
                         optimizers the same time as sums
    """

    memory_bytes_per_s: float = 4e9
    work_overhead_s: float = 5e-6
    message_cost_s: float = MESSAGE_S
    message_bytes_per_s: float = MESSAGE_BYTES_PER_S
    costs: Costs | None = field(default_factory=reference_costs)

    @property
    def copies_cost(self) -> bool:
        """Whether copies in memory take time."""
        return self.costs is not None and COPY in self.costs

    def of_plan(self, plan: Plan) -> ComputeModel:
        """Return the model with the Plan's table of costs and, for a traced job, the Plan's memory bandwidth."""
        if plan.traced is not None and plan.traced.memory_bps:
            rate = plan.traced.memory_bps / 8  # messages come into the device's memory, not through a processor
            return replace(self, memory_bytes_per_s=rate, message_bytes_per_s=rate)._with_costs(plan)
        return self._with_costs(plan)

    def _with_costs(self, plan: Plan) -> ComputeModel:
        if not plan.simulation.costs or self.costs is None:
            return self
        rows = {name: Row(*seconds) for name, seconds in plan.simulation.costs.items()}
        return replace(self, costs=self.costs | rows)._with_messages(rows.get(MESSAGE))

    def _with_messages(self, row: Row | None) -> ComputeModel:
        """Return the model with the receivers' cost and rate of the row ``message``; unchanged without a row."""
        if row is None:
            return self
        rate = 1 / row.payload_byte_s if row.payload_byte_s else math.inf
        return replace(self, message_cost_s=row.call_s, message_bytes_per_s=rate)

    def duration_s(self, work: Work, pacer: Pacer, now_s: float) -> float:
        """Return the duration of ``work`` begun at ``now_s``. A ``measured`` device has its ``step_time_s``."""
        if work.kind == "step":
            return pacer.duration_s(work.steps, now_s)
        if work.kind == USER_CODE:
            return 0.0
        if work.cost is not None and (self.costs is not None or work.kind in CODING):
            return self._cost_s(work, work.cost, pacer)
        if work.kind == COPY and not self.copies_cost:
            return 0.0
        if self.costs is not None and work.kind in self.costs and work.size_bytes:
            return self.costs[work.kind].seconds(0, work.size_bytes)
        return self.work_overhead_s + work.size_bytes / self.memory_bytes_per_s

    def _cost_s(self, work: Work, cost: Cost, pacer: Pacer) -> float:
        if self.costs is None:
            return 0.0
        row = self.costs.get(cost.row)
        if row is None:
            row = Row(self.work_overhead_s, cost.element_s)
        duration_s = row.seconds(work.elements, work.size_bytes)
        return duration_s / pacer.codec_speed if work.kind in CODING else duration_s
