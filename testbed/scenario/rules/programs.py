"""Rules of workloads that are commands: where they run, and which settings of network and faults apply to them."""

from __future__ import annotations

from testbed.scenario.reading.violations import Violation
from testbed.scenario.rules.facts import Found
from testbed.scenario.schema import Scenario
from testbed.training.options.declarations import PROGRAM

_FAULTS_OF_NODES = ("kill", "pause")


def programs_have_processes_of_their_own(scenario: Scenario) -> Found:
    if not scenario.is_program:
        return
    if (refused := scenario.run.facilities.no_programs) is not None:
        yield Violation(("workload",), *refused)
    for index, site in enumerate(scenario.topology.data_centers):
        for key in ("global_servers", "device", "worker_devices"):
            if getattr(site, key):
                at = ("topology", "data_centers", index, key)
                yield Violation(at, "has no effect on a user's program", "remove it")
    for index, fault in enumerate(scenario.faults):
        if not fault.hits_links and fault.kind not in _FAULTS_OF_NODES:
            hint = f"write {' or '.join(_FAULTS_OF_NODES)}, or a fault of a link"
            yield Violation(("faults", index, "kind"), f"'{fault.kind}' affects only the testbed's own nodes", hint)
        if fault.round is not None and scenario.workload is not None and not scenario.workload.metrics:
            problem = "the program's rounds are unknown"
            yield Violation(("faults", index, "round"), problem, "write 'at: 10 s', or 'workload: {metrics: stdout}'")


def commands_make_programs(scenario: Scenario) -> Found:
    training = scenario.training
    for key, samples in (("model", training.model.declared.takes), ("data", training.data.declared.gives)):
        if samples == PROGRAM and not scenario.is_program:
            problem = "only stands for what a user's program trains"
            yield Violation(("training", key), problem, "write 'workload: {command: …}' and no training")
