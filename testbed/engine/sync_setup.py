"""Derives from a Plan's synchronisation algorithms the tiers, members, local steps and rounds of its nodes.

Callers import the module, not its names, so that a test can replace a function for all callers at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from testbed.codec.options import CODECS
from testbed.plan.model import DECLARED, NodePlan, Plan
from testbed.plan.once import once_per_plan
from testbed.policy.collective.options import inside_of
from testbed.policy.events import Contribution
from testbed.policy.sync import SYNC
from testbed.policy.sync.base import TOKEN, LocalModel, Member, SyncPolicy, Tier, WorkerDevice
from testbed.policy.sync.streaming import Streaming
from testbed.settings.job import Choice


@once_per_plan
def worker_sync(plan: Plan) -> tuple[type[SyncPolicy], Any]:
    """Return the synchronisation algorithm that applies to workers, and its options."""
    choice = plan.technique.sync_tier1
    return SYNC[choice.kind], SYNC.options(choice.kind, choice.options)


def contribution_of(plan: Plan) -> Contribution:
    return worker_sync(plan)[0].contribution


def local_steps(plan: Plan) -> Callable[[int], int]:
    """Return the function that maps a round to the number of local steps that the algorithm declares for it."""
    algorithm, options = worker_sync(plan)
    return partial(algorithm.local_steps, options)


def lan_rounds(plan: Plan) -> int:
    """Return n, where the aggregate of every n-th round of a worker crosses the WAN."""
    algorithm, options = worker_sync(plan)
    return algorithm.lan_rounds(options)


def rounds_apart(plan: Plan, server: NodePlan) -> int:
    """Return n, where ``server`` takes part in every n-th round of a worker."""
    return lan_rounds(plan) if server.role == "global_server" and plan.with_role("server") else 1


def streaming(plan: Plan) -> Streaming | None:
    """Return the turns in which fragments of the model are sent; ``None`` if every round sends the whole model."""
    algorithm, options = worker_sync(plan)
    return algorithm.streaming(options)


def outer_optimizer(plan: Plan) -> Choice | None:
    """Return the outer optimizer: the scenario's, or else the algorithm's; ``None`` if there is none."""
    if plan.technique.outer_optimizer.kind != DECLARED:
        return plan.technique.outer_optimizer
    algorithm, options = worker_sync(plan)
    declared = algorithm.outer_optimizer(options)
    return None if declared is None else Choice(kind=declared[0], options=declared[1])


def stepped_with(plan: Plan) -> Choice:
    """Return the optimizer with which, in runs without servers, every worker makes a step after an exchange.

    For gradients it is the scenario's optimizer, for changes of models the outer optimizer. If there is no outer
    optimizer, SGD with learning rate 1 applies the mean of the changes.
    """
    if contribution_of(plan) is Contribution.GRADIENT:
        return plan.technique.optimizer
    return outer_optimizer(plan) or Choice(kind="sgd", options={"learning_rate": 1.0})


def needs_reports(plan: Plan) -> bool:
    """Return whether the algorithm of either tier needs workers to measure their steps and transfers."""
    technique = plan.technique
    return any(SYNC[choice.kind].needs_reports for choice in (technique.sync_tier1, technique.sync_tier2))


def lags(plan: Plan) -> bool:
    """Return whether workers go on while the replies to several of their pushes are still outstanding."""
    return worker_sync(plan)[0].lags


def staleness(plan: Plan) -> int:
    """Return the maximum number of pushed rounds whose values a worker may lack, until a reply changes the number."""
    algorithm, options = worker_sync(plan)
    return algorithm.staleness(options) if algorithm.lags else 0


def moments(plan: Plan) -> dict[str, int]:
    """Return, by name of a moment of the workers' optimizers, n, where workers average it in every n-th round."""
    algorithm, options = worker_sync(plan)
    return algorithm.moments(options)


def weighs_tokens(plan: Plan) -> bool:
    """Return whether contributions are weighted by the samples with which their workers trained in the round."""
    algorithm, options = worker_sync(plan)
    return contribution_of(plan) is not Contribution.GRADIENT and algorithm.weights(options) == TOKEN


def averages(plan: Plan, server: NodePlan) -> bool:
    """Return whether aggregates at ``server`` are scaled up for missing members, so that they stand for all."""
    algorithm = SYNC[choice_of(plan, server).kind]
    return algorithm.waits or (contribution_of(plan) is not Contribution.GRADIENT and algorithm.averages)


def choice_of(plan: Plan, server: NodePlan) -> Choice:
    """Return the synchronisation algorithm of ``server``."""
    return plan.technique.sync_tier1 if server.role == "server" else plan.technique.sync_tier2


def all_wait(plan: Plan) -> bool:
    """Return whether rounds of both tiers combine the contributions of all members."""
    technique = plan.technique
    return SYNC[technique.sync_tier1.kind].waits and SYNC[technique.sync_tier2.kind].waits


def sums_inside(plan: Plan) -> bool:
    """Return whether the workers of a data centre sum their contributions, so that one worker pushes for all."""
    return bool(plan.with_role("server")) and inside_of(plan.technique.paradigm.options) is not None


def sums_on_host(plan: Plan) -> bool:
    """Return whether the workers of a data centre sum their contributions in main memory, even gradients on a GPU."""
    inside = inside_of(plan.technique.paradigm.options)
    return sums_inside(plan) and inside is not None and not inside.on_gpu


def sync_policy(plan: Plan, node: NodePlan) -> SyncPolicy:
    """Return a new policy for the server ``node``, over its contributing children."""
    choice = choice_of(plan, node)
    policy = SYNC[choice.kind](tier_of(plan, node), SYNC.options(choice.kind, choice.options))
    policy.chosen = choice.kind
    return policy


def tier_of(plan: Plan, node: NodePlan) -> Tier:
    """Return the tier that the policy of ``node`` sees: its members, each with the training workers below it."""
    devices = _devices(plan)
    two_tiers = bool(plan.with_role("server"))
    technique = plan.technique
    # if workers do not wait for each other, the local server passes on each of their pushes by itself
    one_by_one = node.role == "global_server" and two_tiers and not SYNC[technique.sync_tier1.kind].waits
    model = local_model(plan)
    updates = model.updates if model is not None and node.role == "global_server" else 0
    return Tier(
        tuple(
            Member(name, tuple(devices.get(name, ())), max(1, len(devices.get(name, ()))) if one_by_one else 1, updates)
            for name in contributors(plan, node)
        ),
        number=1 if node.role == "server" else 2,
        top=node.role == "global_server",
        adjustable=CODECS[technique.codec_tier2.kind].adjustable,
        steps_assigned_above=node.role == "server" and model is None and SYNC[technique.sync_tier2.kind].assigns_steps,
    )


def local_model(plan: Plan) -> LocalModel | None:
    """Return the settings of the local servers' own models; ``None`` if no local server has a model of its own."""
    algorithm, options = worker_sync(plan)
    return algorithm.local_model(options) if plan.with_role("server") else None


def tier_of_workers(plan: Plan, names: Sequence[str]) -> Tier:
    """Return the tier of the training workers ``names``, which exchange with each other without a server."""
    return Tier(tuple(Member(name, tuple(_devices(plan)[name])) for name in names), number=2)


@once_per_plan
def _devices(plan: Plan) -> dict[str, list[WorkerDevice]]:
    """Return, by training worker and by parent, the devices of the training workers at or below this node."""
    devices: dict[str, list[WorkerDevice]] = defaultdict(list)
    for worker in plan.training_workers:
        device = WorkerDevice(worker.name, worker.device.step_time_s)
        for name in (worker.name, *worker.parents):
            devices[name].append(device)
    return devices


def contributors(plan: Plan, node: NodePlan) -> tuple[str, ...]:
    """Return the children that contribute to rounds, in order: training workers, or servers with a training worker.

    If workers sum among themselves, the first of them contributes for all.
    """
    return _contributors(plan, node.name)


@once_per_plan
def _contributors(plan: Plan, server: str) -> tuple[str, ...]:
    node = plan.node(server)
    children = tuple(child for child in node.children if child in plan.contributing)
    if node.role == "server" and sums_inside(plan):
        return children[:1]
    return children
