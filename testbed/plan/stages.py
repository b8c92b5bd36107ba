"""Stages of a pipeline in a Plan: who computes which, and the Plan that the replicas of one stage have.

A stage's parameters are trained by its replicas alone, as if they were a run of their own. So what exchanges gradients
is given the Plan of the stage (``plan_of_stage``): its workers and its servers, and everything else of the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from testbed.ids import data_center_of
from testbed.plan.model import LinkPlan, NetworkPlan, NodePlan, PipelinePlan, Plan
from testbed.plan.once import once_per_plan
from testbed.policy.pipeline.base import Hop


def hop_between(network: NetworkPlan, source: str, target: str, size_bits: float) -> Hop:
    """Return how long a message of this size occupies the slowest link from one data centre to another, and the delay.

    Inside a data centre that is its LAN.
    """
    links: dict[str, LinkPlan] = {link.name: link for link in network.links}
    sites = {site.name: site for site in network.sites}
    ends = (sites[source], sites[target])
    route = [links[name] for name in network.between(source, target)] if source != target else []
    rate_bps = min([*(end.lan_rate_bps for end in ends), *(link.rate_bps for link in route)])
    delay_s = sum(end.lan_delay_s for end in ends) + sum(link.delay_s for link in route)
    return Hop(size_bits / rate_bps, delay_s)


def by_stage(nodes: Iterable[NodePlan], stages: Mapping[str, tuple[int, ...]]) -> Iterator[NodePlan]:
    """Yield the nodes of one data centre, as those of a run without stages, with the stages of its workers.

    In the place of each server there is one for each stage that it has something to do with, with that stage's number.
    """
    every = sorted({stage for site in stages.values() for stage in site})
    for node in nodes:
        if node.role == "worker":
            yield _of_stage(node, stages[node.data_center][_number(node.name)])
        elif node.role == "server":
            for stage in sorted(set(stages[node.data_center])):
                yield _with_children(_of_stage(node, stage), stages)
        elif node.role == "global_server":
            for stage in every:
                yield _with_children(_of_stage(node, stage), stages)
        else:
            yield node


def _of_stage(node: NodePlan, stage: int) -> NodePlan:
    parents = tuple(_server_of(name, stage) for name in node.parents)
    name = node.name if node.role == "worker" else _server_of(node.name, stage)
    return replace(node, name=name, parents=parents, stage=stage)


def _with_children(server: NodePlan, stages: Mapping[str, tuple[int, ...]]) -> NodePlan:
    """Return the server of a stage with those of its children that have something to do with the stage."""
    children = []
    for name in server.children:
        of_site = stages.get(data_center_of(name), ())
        if "/worker" in name:
            children += [name] if of_site[_number(name)] == server.stage else []
        elif server.stage is not None and server.stage in of_site:
            children.append(_server_of(name, server.stage))
    return replace(server, children=tuple(children))


def _number(name: str) -> int:
    """``3`` for ``tokyo/worker3``."""
    return int("".join(filter(str.isdecimal, name.rpartition("/")[2])))


def _server_of(name: str, stage: int) -> str:
    """Return the name of the server of a stage in the place of ``name``, ``tokyo/global0``: ``tokyo/global0-2``."""
    return f"{name}-{stage}"


@once_per_plan
def plan_of_stage(plan: Plan, stage: int) -> Plan:
    """Return the Plan of the replicas of one stage. Ranks count within it, so that a worker's rank is its replica."""
    ranks: dict[str, int] = {}
    nodes = []
    for node in plan.nodes:
        if node.stage == stage:
            ranks[node.role] = ranks.get(node.role, -1) + 1
            nodes.append(replace(node, rank=ranks[node.role]))
        elif node.stage is None:
            nodes.append(node)
    return replace(plan, nodes=tuple(nodes))


@once_per_plan
def replicas_of(plan: Plan) -> tuple[tuple[str, ...], ...]:
    """Return the workers of each replica, by stage."""
    assert plan.pipeline is not None, "only a pipeline has replicas"
    replicas = replicas_among(plan.nodes, plan.pipeline.stages)
    return tuple(tuple(node.name for node in replica) for replica in replicas)


def workers_of_stage(nodes: Iterable[NodePlan], stage: int) -> tuple[NodePlan, ...]:
    """Return the workers that compute a stage, by replica."""
    return tuple(node for node in nodes if node.role == "worker" and node.trains and node.stage == stage)


def replicas_among(nodes: Sequence[NodePlan], stages: int) -> tuple[tuple[NodePlan, ...], ...]:
    """Return the workers of each replica, by stage."""
    return tuple(zip(*(workers_of_stage(nodes, stage) for stage in range(stages)), strict=True))


@dataclass(frozen=True, slots=True)
class Sent:
    """What a replica sends in each step from one data centre to another, or inside one: size, and messages."""

    replica: int
    source: str
    target: str
    size_bytes: int
    messages: int

    @property
    def crosses_wan(self) -> bool:
        return self.source != self.target


def sent_in_step(pipeline: PipelinePlan, nodes: Sequence[NodePlan]) -> Iterator[Sent]:
    """Yield the activations and the gradients that go between each two parts of the model."""
    count = pipeline.micro_batches
    sizes = [*zip(pipeline.activation_bytes, pipeline.gradient_bytes, strict=True)]
    for number, replica in enumerate(replicas_among(nodes, pipeline.stages)):
        for part, (activation_bytes, gradient_bytes) in enumerate(sizes):
            before = replica[part % pipeline.stages]
            after = replica[(part + 1) % pipeline.stages]
            if before != after:
                yield Sent(number, before.data_center, after.data_center, count * activation_bytes, count)
                yield Sent(number, after.data_center, before.data_center, count * gradient_bytes, count)
