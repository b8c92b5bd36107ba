"""Rules of workloads that are traces of jobs: their paradigm, back end, devices and faults."""

from __future__ import annotations

from typing import Any

from testbed.paradigms import PARADIGMS
from testbed.policy.collective import ALL_REDUCE
from testbed.scenario.reading.violations import Violation
from testbed.scenario.rules.facts import Found, without_servers
from testbed.scenario.schema import Scenario
from testbed.scenario.trace import DEVICE
from testbed.training.options.declarations import TRACE

_FAULTS = ("kill", "pause", "slow")


def traces_have_collectives(scenario: Scenario) -> Found:
    if not scenario.is_traced:
        return
    paradigm = scenario.paradigm
    algorithm = getattr(paradigm.options, "algorithm", "")
    if not without_servers(scenario) or algorithm not in ALL_REDUCE:
        fitting = next(kind for kind, each in PARADIGMS.items() if each.presets and each.global_sum and not each.tiers)
        problem = "a trace's all-reduces are made by a dense algorithm among workers"
        cure = f"write 'paradigm: {{kind: {fitting}, algorithm: …}}', of {', '.join(ALL_REDUCE)}"
        yield Violation(("paradigm",), problem, cure)
    if scenario.run.on == "cluster":
        problem = "the files of a trace are on this machine, but nodes of a cluster read their own"
        yield Violation(("workload", "trace"), problem, "write 'on: simulate', 'emulate', 'local' or 'exact'")


def traces_state_durations(scenario: Scenario) -> Found:
    if not scenario.is_traced:
        return
    for index, site in enumerate(scenario.topology.data_centers):
        at: tuple[str | int, ...] = ("topology", "data_centers", index)
        if site.device is not None:
            yield from _without_effect((*at, "device"), site.device)
        for name, device in site.worker_devices.items():
            yield from _without_effect((*at, "worker_devices", name), device)


def _without_effect(at: tuple[str | int, ...], device: Any) -> Found:
    if any(value is not None and key not in DEVICE for key, value in vars(device).items()):
        yield Violation(at, f"only {', '.join(DEVICE)} have an effect on a trace", "remove the others")


def faults_of_traces(scenario: Scenario) -> Found:
    for index, fault in enumerate(scenario.faults if scenario.is_traced else ()):
        if not fault.hits_links and fault.kind not in _FAULTS:
            problem = f"'{fault.kind}' needs a training, but a trace is only played"
            yield Violation(("faults", index, "kind"), problem, f"write {' or '.join(_FAULTS)}, or a fault of a link")


def traces_are_workloads(scenario: Scenario) -> Found:
    training = scenario.training
    for key, samples in (("model", training.model.declared.takes), ("data", training.data.declared.gives)):
        if samples == TRACE and not scenario.is_traced:
            yield Violation(("training", key), "only stands for what a trace holds", "write 'workload: {trace: …}'")
