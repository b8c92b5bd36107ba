"""Check a scenario: every problem with file, line and column. Creates nothing."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from testbed.cli.options import Outcome, add_scenario, read_jobs
from testbed.numbers import counted, seconds

if TYPE_CHECKING:
    from testbed.scenario import Scenario
    from testbed.scenario.jobs import ReadJobs

HELP = "check a scenario, and report every problem"
add_arguments = add_scenario


def execute(arguments: argparse.Namespace) -> Outcome:
    from testbed.execution import capacity
    from testbed.launch import check_before_training
    from testbed.plan.asynchronous import shares_rounds
    from testbed.plan.build import build_plan
    from testbed.scenario.sweep import is_swept

    if is_swept(arguments.scenario):
        return _sweep(arguments)
    read = read_jobs(arguments)
    if read.are_several:
        return _jobs(arguments, read)
    scenario = read.jobs[0].scenario
    plan = build_plan(scenario)
    check_before_training(scenario, plan)
    technique = _technique(scenario)
    warnings = [*plan.warnings, *capacity.warnings(plan)]
    if arguments.json:
        facts = {"kind": "valid", "name": plan.name, "back_end": plan.back_end, "nodes": len(plan.nodes)}
        chosen = {"technique": {"name": scenario.technique, **technique}} if technique else {}
        return {**facts, **chosen, "warnings": warnings, "traces": [asdict(trace) for trace in scenario.traces]}
    sites = len(plan.network.sites)
    notes = f", {counted(len(warnings), 'note')}" if warnings else ""
    where = f"{counted(sites, 'data centre')}, {counted(len(plan.nodes), 'node')}"
    print(f"{arguments.scenario}: valid ({where}, on {plan.back_end}{notes})")
    if technique:
        print(f"  technique {scenario.technique}: {', '.join(f'{key}: {text}' for key, text in technique.items())}")
    for trace in scenario.traces:
        unit = f", in {trace.unit}" if trace.unit else ""
        print(
            f"  trace {trace.name}: {trace.what}, {trace.format} ({trace.how}), {counted(trace.samples, 'sample')}, "
            f"{seconds(trace.length_s)}{unit}{''.join(f'; {note}' for note in trace.notes)}"
        )
    if shares_rounds(plan):
        print(f"  rounds: {plan.training.rounds} per worker on the mean: fast ones make more, as none waits for all")
    for warning in warnings:
        print(f"  note: {warning}")
    return 0


def _sweep(arguments: argparse.Namespace) -> Outcome:
    """Check every run of a file's sweep. Checks just before a run's first step are made for the first seed only."""
    from testbed.execution import capacity
    from testbed.execution.sweep_points import points_of
    from testbed.launch import check_before_training
    from testbed.scenario.sweep import fixed, joined, read_sweep

    scenario, written = read_sweep(arguments.scenario)
    wanted = joined(written, fixed(arguments.overrides, arguments.seed))
    points = points_of(scenario, wanted, arguments.on, arguments.allow_code)
    warnings = dict.fromkeys(warning for point in points for warning in point.plan.warnings)
    for point in points[:: len(wanted.seeds_from(0))]:
        check_before_training(point.scenario, point.plan)
        warnings |= dict.fromkeys(capacity.warnings(point.plan))
    first = points[0].plan
    if arguments.json:
        facts = {"kind": "valid", "name": first.name, "back_end": first.back_end, "runs": len(points)}
        return {**facts, "warnings": list(warnings)}
    notes = f", {counted(len(warnings), 'note')}" if warnings else ""
    print(f"{arguments.scenario}: valid ({counted(len(points), 'run')} of a sweep, on {first.back_end}{notes})")
    for warning in warnings:
        print(f"  note: {warning}")
    return 0


def _jobs(arguments: argparse.Namespace, read: ReadJobs) -> Outcome:
    """Check the jobs of a file, and print a line for each."""
    from testbed.execution import capacity
    from testbed.launch_jobs import planned

    jobs, shared = planned(read)
    plans = [job.plan for job in jobs]
    notes = [*(note for plan in plans for note in plan.warnings), *capacity.warnings_together(plans)]
    warnings = list(dict.fromkeys(notes))
    back_end = plans[0].back_end
    if arguments.json:
        about = {job.name: {"nodes": len(job.plan.nodes), "starts_s": job.start_s} for job in jobs}
        return {"kind": "valid", "name": read.name, "back_end": back_end, "jobs": about, "warnings": warnings}
    sites = len(shared.network.sites)
    where = f"{counted(len(jobs), 'job')} on one network, {counted(sites, 'data centre')}"
    print(f"{arguments.scenario}: valid ({where}, on {back_end})")
    for job in jobs:
        here = ", ".join(dict.fromkeys(node.data_center for node in job.plan.nodes))
        print(f"  {job.name}: {counted(len(job.plan.nodes), 'node')} in {here}, from {seconds(job.start_s)} on")
    for warning in warnings:
        print(f"  note: {warning}")
    return 0


def _technique(scenario: Scenario) -> dict[str, str]:
    """Return the values in the sections that the preset sets, and where the optimizer runs; empty without a preset."""
    if scenario.technique is None:
        return {}
    from testbed.scenario.presets import find_preset, in_one_line
    from testbed.scenario.reading.axes import PerTier
    from testbed.scenario.rules.facts import optimizer_place

    found = {}
    for section in find_preset(scenario.technique).settings:
        value = getattr(scenario, section)
        if isinstance(value, PerTier) and value.tier1 != value.tier2:
            found[section] = in_one_line({tier: technique.resolved() for tier, technique in value})
        else:
            found[section] = in_one_line((value.tier2 if isinstance(value, PerTier) else value).resolved())
    optimizer = scenario.optimizer
    options = {"learning_rate": optimizer.options.learning_rate, "at": optimizer_place(scenario)}
    return {**found, "optimizer": in_one_line({"kind": optimizer.kind, **options})}
