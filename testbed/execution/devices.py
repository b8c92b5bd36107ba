"""The GPUs of a run: refuses a run before it starts if GPUs are missing, and assigns GPUs to nodes by load."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from testbed.devices.inventory import Demand, Gpu, chosen, described, gpus, memory_for, place
from testbed.errors import CapabilityError
from testbed.paradigms import library_of
from testbed.plan.jobs import Job
from testbed.plan.model import NodePlan, Plan
from testbed.policy.collective.options import NCCL

_WITHOUT_PARAMETERS = "scheduler"


def uses_gpus(plan: Plan) -> bool:
    """Return whether any node computes on a GPU; none does if the run computes only sizes, or is a program."""
    return any(map(_on_gpu, plan.nodes)) and plan.training.compute == "real" and plan.program is None


def least_gpus(plan: Plan) -> int:
    """Return how many GPUs a machine needs for all nodes of the run.

    One suffices, unless nodes name a GPU's number, or NCCL needs a GPU for each worker.
    """
    per_worker = len(plan.training_workers) if _sums_on_gpus(plan) else 0
    if not uses_gpus(plan):
        return per_worker
    return max(1, per_worker, *(node.device.index + 1 for node in plan.nodes if _on_gpu(node)))


def _sums_on_gpus(plan: Plan) -> bool:
    """Return whether NCCL sums in this run and so needs a GPU for each worker; in virtual time no library is used."""
    paradigm = plan.technique.paradigm
    return library_of(paradigm.kind, paradigm.options) == NCCL and not plan.facilities.in_virtual_time


def require(plan: Plan) -> None:
    """Raise ``CapabilityError`` if the run needs a GPU but this machine has none."""
    if uses_gpus(plan) and not gpus():
        raise CapabilityError(_none_here(next(node.name for node in plan.nodes if _on_gpu(node))))


def placed(plan: Plan, names: Collection[str] | None = None) -> Plan:
    """Return the Plan with a GPU for each node that needs one. Raise ``CapabilityError`` if this machine lacks GPUs.

    ``names``: the nodes of this machine; default: all.

    To be called once, in the process that starts the nodes, before any node takes GPU memory.
    """
    return placed_together([Job(plan=plan)], names)[0]


def placed_together(jobs: Sequence[Job], names: Collection[str] | None = None) -> list[Plan]:
    """Return the Plans of several jobs with GPUs, as ``placed`` does. All jobs share the GPUs of this machine."""
    demands = [demand for job in jobs for demand in _demands(job, names)]
    if not demands:
        return [job.plan for job in jobs]
    found = place(demands, gpus())
    plans = []
    for job in jobs:
        nodes = tuple(
            replace(node, device=replace(node.device, index=found.get(job.host(node.name), node.device.index)))
            for node in job.plan.nodes
        )
        plans.append(replace(job.plan, nodes=nodes))
    return plans


def _demands(job: Job, names: Collection[str] | None) -> list[Demand]:
    """Return the GPU demands of a job's nodes, named by host. Raise ``CapabilityError`` if the machine has no GPU."""
    plan = job.plan
    here = replace(plan, nodes=tuple(node for node in plan.nodes if names is None or node.name in names))
    if not uses_gpus(here):
        return []
    require(here)
    from testbed.engine.learner import parameter_bytes

    need = memory_for(parameter_bytes(plan))
    asking = [node for node in here.nodes if _on_gpu(node)]
    return [Demand(job.host(node.name), node.device.index, node.device.share, need) for node in asking]


def about(plan: Plan) -> dict[str, Any]:
    """Return the manifest's description of the GPUs; empty if the run uses none."""
    return described() if uses_gpus(plan) else {}


def _on_gpu(node: NodePlan) -> bool:
    return node.device.kind != "cpu" and node.role != _WITHOUT_PARAMETERS


def _none_here(node: str) -> str:
    cuda = described()["cuda"]
    torch = f"torch is built for CUDA {cuda}" if cuda else "the installed torch is built without CUDA, too"
    return (
        f"device.kind: {node} is to compute on a GPU, but 'nvidia-smi' finds none here{chosen()} ({torch}); write "
        "'kind: cpu', or predict a GPU's times with 'on: simulate' and 'training.compute: modelled'"
    )


def require_per_worker(workers: int, option: str) -> None:
    """Raise ``CapabilityError`` unless this machine has a GPU for each of ``workers`` workers, as NCCL needs.

    ``option``: the option of the scenario that asks for NCCL.
    """
    there: tuple[Gpu, ...] = gpus()
    if len(there) < workers:
        raise CapabilityError(
            f"{option}: nccl needs a GPU for each of {workers} workers, but this machine has {len(there)}{chosen()}; "
            f"write '{option.rsplit('.', maxsplit=1)[-1]}: gloo', or train on as many workers as there are GPUs"
        )
