"""A trace's collective operations, by this project's algorithms, and the tensors that its messages carry.

The scenario chooses the algorithm of all-reduce (``paradigm.algorithm``); the other operations are those of
``Collectives``. As in Chakra and ASTRA-sim, the size of an operation is the size of each rank's input; for a scatter,
the size of the root's input.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from testbed.engine.collectives.collectives import Collectives
from testbed.engine.collectives.operation import CollectiveMail
from testbed.engine.collectives.topology import Ranks, ranks_of, segments_of
from testbed.job_trace import model
from testbed.job_trace.model import TraceNode
from testbed.placing import SIZES_ONLY
from testbed.plan.model import NodePlan, Plan
from testbed.policy.collective import ALL_REDUCE
from testbed.policy.collective.butterfly import recursive_doubling
from testbed.policy.collective.options import AllReduceOptions
from testbed.policy.shard.slices import ELEMENT_BYTES
from testbed.world import World

_ELEMENT = torch.float32
_LARGEST_KEPT_BYTES = 256 << 20  # up to this size, one tensor per size is kept and reused, as no code changes it


class Sizes:
    """Makes tensors of given sizes: with numbers if nodes are processes, otherwise without (torch's meta device)."""

    def __init__(self, plan: Plan) -> None:
        self._device = torch.device("cpu") if plan.facilities.has_processes else SIZES_ONLY
        self._kept: dict[int, Tensor] = {}

    def of(self, size_bytes: int) -> Tensor:
        """Return a tensor of ``size_bytes``: of float32, or of bytes if the size is no multiple of four."""
        if size_bytes not in self._kept:
            whole = size_bytes % _ELEMENT.itemsize == 0
            elements = size_bytes // _ELEMENT.itemsize if whole else size_bytes
            made = torch.zeros(elements, dtype=_ELEMENT if whole else torch.uint8, device=self._device)
            if size_bytes > _LARGEST_KEPT_BYTES:
                return made
            self._kept[size_bytes] = made
        return self._kept[size_bytes]


class TraceCollectives:
    """Makes the collective operations of one rank."""

    def __init__(
        self, plan: Plan, node: NodePlan, world: World, mail: CollectiveMail, groups: Mapping[str, tuple[int, ...]]
    ) -> None:
        assert plan.traced is not None, "a worker plays a trace where the Plan has one"
        self._plan = plan
        self._world = world
        self._mail = mail
        self._groups = groups
        self._workers = plan.traced.ranks
        self._sizes = Sizes(plan)
        self._options = AllReduceOptions(**plan.technique.paradigm.options)
        self._made: dict[tuple[str, int], tuple[Ranks, Collectives]] = {}  # by group and root

    async def run(self, node: TraceNode, round_: int) -> None:
        """Make this rank's part of its group's next operation, and return when it is done."""
        group = self._group(node)
        group.round = round_
        tensor = self._sizes.of(node.size_bytes)
        if group.size == 1:
            return
        if node.operation == model.ALL_REDUCE:
            await group.all_reduce(tensor, ALL_REDUCE[self._options.algorithm])
        elif node.operation == model.BARRIER:
            await group.all_reduce(self._sizes.of(ELEMENT_BYTES), recursive_doubling)
        elif node.operation == model.REDUCE_SCATTER:
            await group.reduce_scatter(tensor)
        elif node.operation == model.ALL_GATHER:
            await group.all_gather(tensor)
        elif node.operation == model.BROADCAST:
            await group.broadcast(tensor)
        elif node.operation == model.REDUCE:
            await group.reduce(tensor)
        elif node.operation == model.GATHER:
            await group.gather(tensor)
        else:
            parts = [self._sizes.of(stop - start) for start, stop in group.parts_of(node.size_bytes)]
            if node.operation == model.ALL_TO_ALL:
                await group.all_to_all(parts)
            else:
                await group.scatter(() if group.rank else parts)

    def _group(self, node: TraceNode) -> Collectives:
        """Return the group as ranks of a collective operation: data centre by data centre, its root first."""
        key = (node.group, node.peer)
        if key not in self._made:
            ranks = ranks_of(self._plan, self._members(node.group))
            name = node.group or "all"
            if node.peer >= 0:
                ranks = ranks.beginning_with(self._workers[node.peer])
                name += f" of {node.peer}"
            self._made[key] = ranks, Collectives(self._world, self._mail, ranks.names, name=name)
        ranks, group = self._made[key]
        elements = node.size_bytes // ELEMENT_BYTES
        group.shape = ranks.shape(self._options.segments or segments_of(self._plan, ranks, elements))
        return group

    def _members(self, group: str) -> tuple[str, ...] | None:
        """Return the workers of a group; ``None``: all."""
        ranks = self._groups.get(group)
        return tuple(self._workers[rank] for rank in ranks) if ranks else None
