"""Rules of the training job: compute, data loading, user scripts, and options without effect."""

from __future__ import annotations

from dataclasses import fields

from testbed.declaration import other_than_default
from testbed.paradigms import PARADIGMS
from testbed.policy.collective.options import AFTERWARDS, BUCKETS
from testbed.policy.order import ORDERS
from testbed.policy.sync import SYNC
from testbed.scenario.reading.axes import PerTier, Technique
from testbed.scenario.reading.violations import Violation
from testbed.scenario.rules.facts import (
    Found,
    is_scripted,
    kinds,
    overlaps,
    pulls_rows,
    tiers_of,
    without_servers,
)
from testbed.scenario.schema import Scenario
from testbed.scenario.topology.topology import generated
from testbed.training.options import SPLITS
from testbed.training.options.declarations import NOTHING, TEXT


def scripts_have_steps_of_their_own(scenario: Scenario) -> Found:
    if not is_scripted(scenario):
        return
    sync = scenario.sync.tier1
    order = scenario.order
    if without_servers(scenario) or any(not site.workers for site in scenario.topology.data_centers):
        with_servers = kinds(PARADIGMS, lambda paradigm: paradigm.tiers)
        problem = "a script trains on every worker, through the servers"
        yield Violation(
            ("workload",), problem, f"write paradigm: {with_servers}, and give the central data centre workers"
        )
    if overlaps(scenario):
        yield Violation(
            ("order",),
            "'overlap: layers' cuts a step at its layers, but a script computes its own steps",
            "write 'overlap: none'; slices and priorities still have their effect",
        )
    staleness = getattr(scenario.sync.tier2.options, "staleness", None)
    if tiers_of(scenario) == 2 and not sync.declared.waits and staleness == 0:
        yield Violation(
            ("sync", "tier2", "staleness"),
            "a script may end at any time, and would leave the others of its data centre waiting in mid-round",
            f"write 1 or more, or 'sync: {SYNC.default}', or one tier of servers",
        )
    assigning = [
        each.kind
        for _, each in scenario.sync
        if each.declared.assigns_steps and not getattr(each.options, "fixed_steps", 0)
    ]
    if assigning:
        yield Violation(
            ("sync",),
            f"'{assigning[0]}' gives each worker its own number of steps, but a script makes equally many on every "
            "worker: they would end after different rounds",
            "write one number for all, 'fixed_steps: 4', or sync: "
            f"{kinds(SYNC, lambda each: each.waits and 1 in each.tiers and not each.assigns_steps)}",
        )
    if sync.declared.weights(sync.options) == "sample":
        problem = "'sample' counts the samples of each worker's share, but a script has data of its own"
        yield Violation(("sync", "tier1", "weights"), problem, "write 'worker' or 'party'")
    if sync.declared.streaming(sync.options) is not None:
        problem = "fragments travel while steps go on, but a script exchanges its whole model and waits for it"
        yield Violation(("sync",), problem, f"write sync: {{kind: {sync.kind}}} without fragments and overlap_steps")
    if order.declared.needs_loss(order.options):
        problem = f"'{order.kind}' follows the training loss, which a script keeps to itself"
        yield Violation(("order",), problem, f"write 'adaptive: false', or 'order: {ORDERS.default}'")
    for kind in sorted({"nan", "attack"}.intersection(fault.kind for fault in scenario.faults)):
        problem = f"of kind '{kind}' spoil a gradient that the testbed computes, but a script computes its own"
        yield Violation(("faults",), problem, "remove them; the script may push what it likes")


def modelled_compute_has_no_values(scenario: Scenario) -> Found:
    training = scenario.training
    at = ("training", "compute")
    if training.compute == "real":
        if training.model.declared.takes == NOTHING:
            problem = "'real' needs a model with values, but this one has only shapes"
            yield Violation(at, problem, "write 'modelled', and run it with 'on: simulate'")
        return
    if scenario.run.facilities.has_processes:
        problem = "'modelled' computes nothing, but real processes need values"
        yield Violation(at, problem, "write 'real', or run it with 'on: simulate'")
    if training.target is not None:
        measure = training.target.measure
        problem = "has no effect when training.compute is 'modelled'"
        yield Violation(("training", f"target_{measure}"), problem, f"there is no {measure} without values; remove it")
    for kind in sorted({"nan", "attack"}.intersection(fault.kind for fault in scenario.faults)):
        problem = f"of kind '{kind}' need values, but training.compute is 'modelled'"
        yield Violation(("faults",), problem, "remove them")


def measured_pace_needs_real_time(scenario: Scenario) -> Found:
    if scenario.run.on != "exact" or is_scripted(scenario) or scenario.is_program:
        return
    if "measured" in _given(scenario, "pace") and scenario.exact.cpu != "measured":
        problem = f"'measured' steps take no time in an exact run with exact.cpu: {scenario.exact.cpu}"
        yield Violation(("device", "pace"), problem, "write exact.cpu: measured, or 'paced' and a device.step_time")


def gpus_are_where_they_can_be_used(scenario: Scenario) -> Found:
    if not _given(scenario, "kind", "server_device") - {"cpu"}:
        return
    if not scenario.run.facilities.has_gpus:
        problem = "'cuda' needs a GPU's driver, but the kernel of an exact run has none"
        yield Violation(("device", "kind"), problem, "write 'kind: cpu', or 'on: emulate'")
    if pulls_rows(scenario):
        problem = "'pull: rows' finds and gathers rows in main memory"
        cure = "write 'kind: cpu' (and 'server_device: cpu'), or 'paradigm.pull: all'"
        yield Violation(("device", "kind"), problem, cure)


def devices_of_servers_need_servers(scenario: Scenario) -> Found:
    if without_servers(scenario) and _given(scenario, "server_device") - {"cpu"}:
        yield Violation(("device", "server_device"), "has no effect without servers", "remove it")


def layers_are_computed_whole(scenario: Scenario) -> Found:
    if scenario.training.accumulate == 1:
        return
    if overlaps(scenario):
        problem = "'overlap: layers' sends a layer's gradient before the batch's other parts are computed"
        yield Violation(("training", "accumulate"), problem, "write 1, or 'overlap: none'")
    if getattr(scenario.paradigm.options, "overlap", AFTERWARDS) != AFTERWARDS:
        problem = f"'overlap: {BUCKETS}' sums a layer's gradient before the batch's other parts are computed"
        yield Violation(("training", "accumulate"), problem, f"write 1, or 'overlap: {AFTERWARDS}'")


def _given(scenario: Scenario, *keys: str) -> set[str]:
    """Return the values written for these keys of ``device``: for all workers, a data centre, or a single worker."""
    sites = scenario.topology.data_centers
    of_workers = (device for site in sites for device in site.worker_devices.values())
    devices = [scenario.device, *(site.device for site in sites), *of_workers]
    return {value for device in devices for key in keys if (value := getattr(device, key, None)) is not None}


def steps_are_computed_here(scenario: Scenario) -> Found:
    """Settings of how steps are computed have no effect if nothing is computed, or if a script computes."""
    training = scenario.training
    if training.compute != "modelled" and not is_scripted(scenario):
        return
    if training.compute == "modelled" and training.split.kind != SPLITS.default:
        problem = "has no effect here: no samples are used, and all workers count the same"
        yield Violation(("training", "split"), problem, "remove it")
    where = "a script computes its own steps" if is_scripted(scenario) else "nothing is computed"
    # if nothing is computed, precision and accumulation still determine the size of activations in memory
    computing = ("precision", "accumulate") if is_scripted(scenario) else ()
    for key in other_than_default(training, *computing, "compile", "deterministic"):
        yield Violation(("training", key), f"has no effect here: {where}", "remove it")


def data_are_what_the_model_takes(scenario: Scenario) -> Found:
    model = scenario.training.model
    data = scenario.training.data
    takes = model.declared.takes
    gives = data.declared.gives
    if takes != gives:
        problem = f"'{data.kind}' gives {gives}, but the model '{model.kind}' takes {takes}"
        yield Violation(("training", "data"), problem, "choose another model or data")


def samples_fit_model_and_split(scenario: Scenario) -> Found:
    """Check samples before they are read, by their declared shape and by whether each sample has one class."""
    training = scenario.training
    data = training.data
    model = training.model
    found = data.declared.sample_bound(data.options)
    fits = found is not None and model.declared.takes == data.declared.gives
    misfit = model.declared.misfit(model.options, found[0]) if fits else ""
    if misfit and training.compute == "real":
        problem, _, cure = misfit.partition("; ")
        yield Violation(("training", "model"), problem, cure)
    if data.declared.gives == TEXT and training.split.declared.needs_classes:
        problem = f"'{training.split.kind}' needs one class per sample, but text has none"
        equal = kinds(SPLITS, lambda split: split.equal and not split.needs_classes)
        yield Violation(("training", "split"), problem, f"write {equal}")


def loading_has_samples_and_time(scenario: Scenario) -> Found:
    if not scenario.training.loading.declared.loads:
        return
    if scenario.training.compute == "modelled" or is_scripted(scenario):
        problem = "there are no samples to load: nothing is computed, or the script has its own data"
        yield Violation(("training", "loading"), problem, "remove it")
    if overlaps(scenario):
        problem = "'overlap: layers' begins a step without waiting for its batch to be loaded"
        yield Violation(("training", "loading"), problem, "write 'overlap: none'")


def samples_are_at_a_worker(scenario: Scenario) -> Found:
    source = getattr(scenario.training.loading.options, "source", "")
    if not source:
        return
    sites = {site.name for site in generated(scenario.topology).data_centers if site.workers or site.central}
    if source not in sites:
        yield Violation(
            ("training", "loading", "source"),
            "is not a data centre with workers",
            "name one that has, or leave it out for a store beside every worker",
        )


def options_are_good(scenario: Scenario) -> Found:
    """Options obey the rules of the techniques that declare them."""
    for prefix, section in ((), scenario), (("training",), scenario.training):
        for field in fields(section):
            value = getattr(section, field.name)
            if isinstance(value, Technique):
                yield from value.violations(*prefix, field.name)
            elif isinstance(value, PerTier):
                for tier, technique in value:
                    yield from technique.violations(*prefix, field.name, tier)
