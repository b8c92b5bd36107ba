"""Scenarios whose model is cut into stages, and the same scenario as the replicas of one stage see it."""

from __future__ import annotations

from dataclasses import replace

from testbed.paradigms import Pipeline
from testbed.policy.pipeline.base import Hop
from testbed.policy.pipeline.placement import Ground
from testbed.scenario.schema import Scenario
from testbed.scenario.topology.topology import generated


def pipeline_of(scenario: Scenario) -> Pipeline | None:
    options = scenario.paradigm.options
    return options if isinstance(options, Pipeline) else None


def exchanging(scenario: Scenario) -> Scenario:
    """Return the scenario as the replicas of one stage see it, with the paradigm by which they exchange gradients."""
    pipeline = pipeline_of(scenario)
    return scenario if pipeline is None else replace(scenario, paradigm=pipeline.replicas)


def stages_of(scenario: Scenario) -> int:
    """Return the number of stages of a scenario with a pipeline; by default, the number of workers."""
    stages: int = scenario.paradigm.options.stages
    return stages or sum(site.workers for site in generated(scenario.topology).data_centers)


def ground_of(scenario: Scenario) -> Ground:
    """Return the sites on which the stages of a pipeline are placed, with distances of zero between them."""
    sites = tuple((site.name, site.workers) for site in generated(scenario.topology).data_centers if site.workers)
    return Ground(sites, stages_of(scenario), lambda a, b: Hop())
