"""Makes the Plan of a scenario, by a pure function. The same scenario gives the same Plan, byte for byte."""

from __future__ import annotations

from testbed.errors import ScenarioError
from testbed.plan import settings
from testbed.plan.code import code_of, code_of_pipeline
from testbed.plan.effects import slowed, with_faults
from testbed.plan.faults import build_faults, refuse_late_faults
from testbed.plan.jobs import Job, SharedNetwork
from testbed.plan.model import PLAN_VERSION, Plan
from testbed.plan.network import build_links, build_network
from testbed.plan.network_model import simulation_of
from testbed.plan.pipeline import staged
from testbed.plan.placement import build_nodes, build_program_nodes, stages_by_site
from testbed.plan.sharing import sharing
from testbed.plan.stages import Sent, sent_in_step
from testbed.plan.timeouts import derive
from testbed.plan.warnings import warnings_for
from testbed.scenario import Scenario
from testbed.scenario.jobs import ReadJobs
from testbed.scenario.load import moved
from testbed.scenario.pipeline import exchanging, pipeline_of
from testbed.scenario.topology.topology import generated


def build_jobs(read: ReadJobs) -> tuple[tuple[Job, ...], SharedNetwork]:
    """Return the jobs of a file with their Plans, and the network that they share. Raise ``ScenarioError``."""
    jobs = []
    problems: list[str] = []
    for job in read.jobs:
        try:
            jobs.append(Job(plan=build_plan(job.scenario), name=job.name, start_s=job.start_s))
        except ScenarioError as error:
            problems += error.problems
    if problems:
        raise ScenarioError(list(dict.fromkeys(problems)))
    if not read.are_several:
        plan = jobs[0].plan
        return tuple(jobs), SharedNetwork(network=plan.network, background=plan.background)
    scenario = read.network
    topology = generated(scenario.topology)
    network = build_network(topology, build_links(topology, scenario.seed), scenario.run.facilities)
    faults = build_faults(scenario, network, ())
    background = settings.background_of(scenario, network)
    shared = SharedNetwork(network=with_faults(network, faults), background=background, faults=faults)
    return sharing(jobs, shared), shared


def build_plan(scenario: Scenario, on: str | None = None) -> Plan:
    """Return everything that a back end needs to know. ``on`` overrides ``run.on``. Raise ``ScenarioError``."""
    scenario = moved(scenario, on)
    pipeline = settings.pipeline_of(scenario)
    topology = generated(scenario.topology)
    links = build_links(topology, scenario.seed)
    network = build_network(topology, links, scenario.run.facilities)
    stages = stages_by_site(scenario, network) if pipeline is not None else None
    pipeline_code = code_of_pipeline(pipeline_of(scenario))
    scenario = exchanging(scenario)
    if scenario.is_program:
        nodes = build_program_nodes(scenario, topology)
    else:
        nodes = build_nodes(scenario, topology, stages)
    settings.check_gpu_links(scenario, network, nodes)
    training = settings.training_of(scenario)
    sent: tuple[Sent, ...] = ()
    if pipeline is not None:
        try:
            pipeline = staged(pipeline, training, nodes, network, scenario.seed).pipeline
        except ScenarioError as error:
            raise scenario.placed(error) from error
        sent = tuple(sent_in_step(pipeline, nodes))
    technique = settings.technique_of(scenario)
    faults = build_faults(scenario, network, nodes)
    timeouts = derive(scenario, network, nodes, training, faults, sent)
    refuse_late_faults(scenario, timeouts.run_deadline_s)
    faulty_network = with_faults(network, faults)
    slowed_nodes = slowed(nodes, faults)
    simulation = simulation_of(scenario, network, nodes, training, sent)
    return Plan(
        version=PLAN_VERSION,
        name=scenario.name,
        seed=scenario.seed,
        back_end=scenario.run.on,
        transport=settings.transport_of(scenario),
        training=training,
        technique=technique,
        recovery=scenario.recovery,
        simulation=simulation,
        exact=settings.exact_of(scenario, nodes),
        cluster=settings.cluster_of(scenario, nodes),
        checkpoint_every=scenario.checkpoint.every,
        faults=faults,
        nodes=slowed_nodes,
        network=faulty_network,
        timeouts=timeouts,
        warnings=warnings_for(scenario, faulty_network, slowed_nodes, training, simulation),
        background=settings.background_of(scenario, network),
        program=settings.program_of(scenario, topology),
        traced=settings.traced_of(scenario, slowed_nodes),
        pipeline=pipeline,
        summed_gradients=settings.summed_gradients(scenario, nodes),
        code=code_of(technique, training) + pipeline_code + scenario.code,
    )
