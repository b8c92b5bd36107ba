"""Stages of a pipeline in a Plan: which nodes belong to which stage, and the Plan for the replicas of one stage.

Only the replicas of a stage train its parameters, as if they were a run of their own. So the code that exchanges
gradients gets the Plan of the stage (``plan_of_stage``), which has the stage's workers and servers, and all else of the
whole Plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from testbed.ids import data_center_of
from testbed.plan.model import LinkPlan, NetworkPlan, NodePlan, PipelinePlan, Plan
from testbed.plan.once import once_per_plan
from testbed.policy.pipeline.base import Hop


def hop_between(network: NetworkPlan, source: str, target: str, size_bits: float) -> Hop:
    """Return how long a message occupies the slowest link from one data centre to another, and the delay of the path.

    Inside a data centre, the path is its LAN.
    """
    links: dict[str, LinkPlan] = {link.name: link for link in network.links}
    sites = {site.name: site for site in network.sites}
    ends = (sites[source], sites[target])
    route = [links[name] for name in network.between(source, target)] if source != target else []
    rate_bps = min([*(end.lan_rate_bps for end in ends), *(link.rate_bps for link in route)])
    delay_s = sum(end.lan_delay_s for end in ends) + sum(link.delay_s for link in route)
    return Hop(size_bits / rate_bps, delay_s)


def by_stage(nodes: Iterable[NodePlan], stages: Mapping[str, tuple[int, ...]]) -> Iterator[NodePlan]:
    """Yield the nodes of one data centre with their stages, from its nodes without stages.

    A server is replaced by one server for each stage in its data centre; a global server, by one for each stage.
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
    """Return the server of a stage with only the children that belong to the stage."""
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
    """Return the name of a stage's server: ``tokyo/global0-2`` for ``tokyo/global0`` and stage 2."""
    return f"{name}-{stage}"


@once_per_plan
def plan_of_stage(plan: Plan, stage: int) -> Plan:
    """Return the Plan for the replicas of one stage. Ranks count within the stage: a worker's rank is its replica."""
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
    """Messages of a replica in each step from one data centre to another, or inside one: total size, and number."""

    replica: int
    source: str
    target: str
    size_bytes: int
    messages: int

    @property
    def crosses_wan(self) -> bool:
        return self.source != self.target


def sent_in_step(pipeline: PipelinePlan, nodes: Sequence[NodePlan]) -> Iterator[Sent]:
    """Yield the activations and their gradients that travel between each two successive parts of the model."""
    count = pipeline.micro_batches
    sizes = [*zip(pipeline.activation_bytes, pipeline.gradient_bytes, strict=True)]
    for number, replica in enumerate(replicas_among(nodes, pipeline.stages)):
        for part, (activation_bytes, gradient_bytes) in enumerate(sizes):
            before = replica[part % pipeline.stages]
            after = replica[(part + 1) % pipeline.stages]
            if before != after:
                yield Sent(number, before.data_center, after.data_center, count * activation_bytes, count)
                yield Sent(number, after.data_center, before.data_center, count * gradient_bytes, count)
