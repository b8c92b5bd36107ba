"""Attacks on the training by a worker that changes its contributions: faults of kind ``attack``.

A contribution is changed after the local work and before any codec. So the worker's own model, its loss and the number
of its bytes are those of an honest worker.
"""

from __future__ import annotations

import torch
from torch import Tensor

from testbed import buffers
from testbed.engine.local_work import copying
from testbed.plan.model import FaultPlan, NodePlan, Plan
from testbed.state import Remembering
from testbed.training.seeds import torch_stream
from testbed.world import World


class Attacks(Remembering):
    """The attacks of one worker. Its noise depends only on the Plan's seed, its name, the round and the key."""

    remembers = ("_copied",)

    def __init__(self, world: World, plan: Plan, node: NodePlan) -> None:
        self._world = world
        self._seed = plan.seed
        self._faults = [fault for fault in plan.faults if fault.kind == "attack" and node.name in fault.targets]
        self._copied: dict[tuple[int, int], Tensor] = {}  # by round of the fault and key: the tensor pushed again

    async def changed(self, round_: int, contributions: dict[int, Tensor]) -> dict[int, Tensor]:
        """Return, by key, the tensors that the worker pushes in ``round_``; before any attack, the contributions."""
        active = [fault for fault in self._faults if (fault.round or 0) <= round_]
        if not active:
            return contributions
        fault = max(active, key=lambda each: (each.round or 0, each.value, each.attack))
        if fault.round == round_:
            self._world.record("fault", fault=fault.kind, targets=self._world.node, begins=True)

        def attacked() -> dict[int, Tensor]:
            return {key: self._changed(fault, round_, key, tensor) for key, tensor in contributions.items()}

        return await self._world.compute(copying(list(contributions.values())), attacked)

    def _changed(self, fault: FaultPlan, round_: int, key: int, tensor: Tensor) -> Tensor:
        if fault.attack == "copy":
            return self._copied.setdefault((fault.round or 0, key), tensor.clone())
        if fault.attack == "noise":
            stream = torch_stream(self._seed, "attack", self._world.node, round_, key)
            noise = torch.randn(tensor.numel(), generator=stream).to(tensor.device)
            return tensor + noise * (fault.value * tensor.square().mean().sqrt())
        factor = -fault.value if fault.attack == "sign_flip" else fault.value
        return buffers.computed(torch.mul, tensor, factor)
