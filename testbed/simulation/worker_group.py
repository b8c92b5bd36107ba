"""The workers that a folded node represents: how long their steps take, and which of them send alike messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.plan.model import NodePlan
from testbed.plan.pace import Pacer


@dataclass(frozen=True, slots=True)
class FlowGroup:
    """Workers whose messages leave at the same time and have the same size, so that one flow class carries them.

    index        the worker's index in its worker group if steps differ; otherwise 0
    copies       number of these workers
    extra_bytes  size of their message minus the size of the first worker's message
    """

    index: int
    copies: int
    extra_bytes: int


class WorkerGroup:
    """The workers behind one folded node.

    If they have equal devices without variation, they do everything at the same time (``in_step``). Otherwise each
    worker has its own pacer.
    """

    def __init__(self, workers: Sequence[NodePlan], seed: int) -> None:
        first = workers[0]
        self.size = len(workers)
        self.in_step = len({worker.device for worker in workers}) == 1 and not first.device.variation
        paced = workers[:1] if self.in_step else workers
        self._pacers = [Pacer(worker.device, seed, worker.name) for worker in paced]
        self._ready_s = [0.0] * len(paced)
        self._coded_s = [0.0] * len(paced)  # when the codec core has finished all its work
        counts: dict[int, int] = {}
        for worker in workers:
            extra_bytes = len(worker.name) - len(first.name)
            counts[extra_bytes] = counts.get(extra_bytes, 0) + 1
        self._by_size = [FlowGroup(0, count, extra_bytes) for extra_bytes, count in counts.items()]
        different = [] if self.in_step else workers
        self._one_by_one = [FlowGroup(i, 1, len(worker.name) - len(first.name)) for i, worker in enumerate(different)]

    def flow_groups(self, simultaneous: bool) -> list[FlowGroup]:
        """Return the flow groups of messages to one node. ``simultaneous``: all workers send at the same time.

        A message's header contains the sender's name, so workers whose names differ in length are in different groups.
        """
        return self._by_size if simultaneous or self.in_step else self._one_by_one

    def work(self, steps: float, now_s: float) -> float:
        """Let every worker begin ``steps`` steps after its last ones. Return when the first worker finishes."""
        ready = self._ready_s
        for i, pacer in enumerate(self._pacers):
            begin_s = ready[i] if ready[i] > now_s else now_s
            ready[i] = begin_s + pacer.duration_s(steps, begin_s)
        return min(ready)

    def work_after(self, duration_s: float, now_s: float) -> float:
        """Let every worker do a piece of work after its last one. Return when the first worker finishes."""
        self._ready_s = [max(begin_s, now_s) + duration_s for begin_s in self._ready_s]
        return min(self._ready_s)

    def code(self, duration_s: float, now_s: float) -> float:
        """Let the codec of every worker work after the worker's steps. Return when the first one finishes.

        Workers in step need not wait for their steps: layers may be sent while other layers are still being computed.
        """
        ready = [now_s] if self.in_step else self._ready_s
        self._coded_s = [
            max(before_s, begin_s, now_s) + duration_s for before_s, begin_s in zip(self._coded_s, ready, strict=True)
        ]
        return min(self._coded_s)

    def ready_s(self, flow_group: FlowGroup) -> float:
        """Return when the workers of a flow group have finished what they send; 0 if they are in step."""
        if self.in_step:
            return 0.0
        return max(self._ready_s[flow_group.index], self._coded_s[flow_group.index])
