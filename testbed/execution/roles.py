"""The roles of nodes that are processes: roles of the engine, or roles that exist only in the real world."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from testbed.engine.checkpoint import CheckpointFiles
from testbed.engine.collectives.inside import MakeLibrary
from testbed.engine.roles import make_role
from testbed.execution.devices import placed, placed_together
from testbed.execution.scripts import watch_of
from testbed.paradigms import PARADIGMS, library_of
from testbed.plan.jobs import Job
from testbed.plan.model import NodePlan, Plan
from testbed.realtime.node import AnyRole
from testbed.results.failures import FailureFiles


def fitted(plan: Plan, nodes: Collection[str] | None = None) -> Plan:
    """Return the plan with GPUs of this machine assigned to its nodes; to be called before any node starts.

    ``nodes``: the nodes of this machine; default: all. Raise ``CapabilityError`` if this machine cannot run the plan.
    """
    _require_library(plan, nodes)
    return placed(plan, nodes)


def fitted_together(jobs: Sequence[Job]) -> list[Plan]:
    """Return the Plans of several jobs with GPUs, as ``fitted`` does. All jobs share the GPUs of this machine."""
    for job in jobs:
        _require_library(job.plan)
    return placed_together(jobs)


def _require_library(plan: Plan, nodes: Collection[str] | None = None) -> None:
    if _library_of(plan):
        from testbed.execution.distributed.torch_group import require

        require(plan, nodes)


def role_maker(
    plan: Plan, files: CheckpointFiles | None, failures: FailureFiles | None = None
) -> Callable[[Plan, NodePlan], AnyRole]:
    """Return a function that makes the role of a node, in the node's own process.

    files     the run's checkpoints, if it keeps any
    failures  files that failed scripts leave behind, if the run has scripts
    """
    if not PARADIGMS[plan.technique.paradigm.kind].library:
        make_library: MakeLibrary | None = None
        if _library_of(plan):
            from testbed.execution.distributed.inside import make_library

        def make_own(plan: Plan, node: NodePlan) -> AnyRole:
            watch = watch_of(failures, node.name, own=True) if node.role == "worker" else None
            return make_role(plan, node, files, watch, make_library)

        return make_own
    from testbed.execution.distributed.role import distributed_worker

    def make(plan: Plan, node: NodePlan) -> AnyRole:
        return distributed_worker(plan, node, files) if node.role == "worker" else make_role(plan, node, files)

    return make


def _library_of(plan: Plan) -> str:
    return library_of(plan.technique.paradigm.kind, plan.technique.paradigm.options)
