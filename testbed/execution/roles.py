"""The roles of nodes that are processes: the engine's, or those that only the real world has."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from testbed.engine.checkpoint import CheckpointFiles
from testbed.engine.roles import make_role
from testbed.plan.model import NodePlan, Plan
from testbed.policy.collective import LIBRARIES
from testbed.realtime.node import AnyRole


def require_machine(plan: Plan) -> None:
    """Raise ``CapabilityError`` if this machine cannot run the plan; to be called before anything starts."""
    if plan.technique.paradigm.kind in LIBRARIES:
        from testbed.execution.distributed.role import require

        require(plan)


def role_maker(plan: Plan, files: CheckpointFiles | None) -> Callable[[Plan, NodePlan], AnyRole]:
    """A function that makes the role of a node. ``files``: the run's checkpoints, if it keeps any."""
    if plan.technique.paradigm.kind not in LIBRARIES:
        return partial(make_role, files=files)
    from testbed.execution.distributed.role import distributed_worker

    def make(plan: Plan, node: NodePlan) -> AnyRole:
        return distributed_worker(plan, node) if node.role == "worker" else make_role(plan, node, files)

    return make
