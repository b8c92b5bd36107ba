"""Rules of the training job: compute, data loading, user scripts, and options without effect."""

from __future__ import annotations

from testbed.policy.order import ORDERS
from testbed.policy.sync import SYNC
from testbed.scenario.reading.violations import Violation
from testbed.scenario.rules.facts import (
    Found,
    by_tier,
    is_scripted,
    kinds,
    overlaps,
    pulls_rows,
    techniques_of,
    tiers_of,
    with_servers,
    without_servers,
)
from testbed.scenario.schema import Scenario
from testbed.scenario.topology.graphs import generated
from testbed.training.options.declarations import NOTHING


def script_needs_servers_and_workers(scenario: Scenario) -> Found:
    unfit = without_servers(scenario) or any(not site.workers for site in scenario.topology.data_centers)
    if is_scripted(scenario) and unfit:
        yield Violation(
            ("workload",),
            "a script trains on every worker, through the servers",
            f"write paradigm: {with_servers()}, and give the central data centre workers",
        )


def script_is_not_cut_at_layers(scenario: Scenario) -> Found:
    if is_scripted(scenario) and overlaps(scenario):
        yield Violation(
            ("order",),
            "'overlap: layers' cuts a step at its layers, and the steps of a script are its own",
            "write 'overlap: none'; slices and priorities have their effect all the same",
        )


def script_may_end_early(scenario: Scenario) -> Found:
    tier1, tier2 = scenario.sync.tier1.declared, scenario.sync.tier2.options
    if is_scripted(scenario) and tiers_of(scenario) == 2 and not tier1.waits and getattr(tier2, "staleness", None) == 0:
        yield Violation(
            ("sync", "tier2", "staleness"),
            "a script may end at any time, and the others would then wait with half of a round of their data centre",
            f"write 1 or more, or 'sync: {SYNC.default}', or one tier of servers",
        )


def script_counts_its_steps(scenario: Scenario) -> Found:
    assigning = [
        sync for _, sync in by_tier(scenario.sync)
        if sync.declared.assigns_steps and not getattr(sync.options, "fixed_steps", 0)
    ]  # fmt: skip
    if is_scripted(scenario) and assigning:
        yield Violation(
            ("sync",),
            f"'{assigning[0].kind}' gives each worker a number of steps of its own, and the loop of a script makes as "
            "many at every worker: they would end after different rounds",
            "write one number for all, 'fixed_steps: 4', or sync: "
            f"{kinds(SYNC, lambda each: each.waits and 1 in each.tiers and not each.assigns_steps)}",
        )


def script_waits_for_whole_models(scenario: Scenario) -> Found:
    sync = scenario.sync.tier1
    if is_scripted(scenario) and sync.declared.streaming(sync.options) is not None:
        yield Violation(
            ("sync",),
            "fragments travel while steps go on, and a script exchanges its whole model and waits for it",
            f"write sync: {{kind: {sync.kind}}} without fragments and overlap_steps",
        )


def script_tells_no_losses(scenario: Scenario) -> Found:
    order = scenario.order
    if is_scripted(scenario) and order.declared.needs_loss(order.options):
        yield Violation(
            ("order",),
            f"'{order.kind}' follows the training loss, and those of a script are its own",
            f"write 'adaptive: false', or 'order: {ORDERS.default}'",
        )


def script_has_gradients_of_its_own(scenario: Scenario) -> Found:
    if not is_scripted(scenario):
        return
    if any(fault.kind == "nan" for fault in scenario.faults):
        problem = "of kind 'nan' spoil a gradient of the testbed's own step, and a script computes its own"
        yield Violation(("faults",), problem, "remove them; the script may push a NaN")
    if scenario.recovery.on_nan == "skip":
        problem = "leaves out gradients of the testbed's own steps, and a script pushes what it likes"
        yield Violation(("recovery", "on_nan"), problem, "write 'abort', and let the script push zeros instead")


def modelled_compute_is_simulated(scenario: Scenario) -> Found:
    if scenario.training.compute == "modelled" and scenario.run.on != "simulate":
        yield Violation(
            ("training", "compute"),
            "'modelled' computes nothing, and real processes need values",
            "write 'real', or run it with 'on: simulate'",
        )


def measured_pace_needs_real_time(scenario: Scenario) -> Found:
    if scenario.run.on != "exact" or is_scripted(scenario) or scenario.is_program:
        return
    if "measured" in _given(scenario, "pace") and scenario.exact.cpu != "measured":
        yield Violation(
            ("device", "pace"),
            f"'measured' steps take no time in an exact run with exact.cpu: {scenario.exact.cpu}",
            "write exact.cpu: measured, or 'paced' and a device.step_time",
        )


def gpus_are_outside_of_exact_runs(scenario: Scenario) -> Found:
    if scenario.run.on == "exact" and _on_gpus(scenario):
        yield Violation(
            ("device", "kind"),
            "'cuda' needs a GPU's driver, and the kernel of an exact run has none",
            "write 'kind: cpu', or 'on: emulate'",
        )


def tables_by_rows_are_on_the_host(scenario: Scenario) -> Found:
    if pulls_rows(scenario) and _on_gpus(scenario):
        yield Violation(
            ("device", "kind"),
            "'pull: rows' finds and gathers rows in main memory",
            "write 'kind: cpu' (and 'server_device: cpu'), or 'paradigm.pull: all'",
        )


def layers_are_computed_whole(scenario: Scenario) -> Found:
    if overlaps(scenario) and scenario.training.accumulate > 1:
        yield Violation(
            ("training", "accumulate"),
            "'overlap: layers' sends a layer's gradient before the batch's other parts have theirs",
            "write 1, or 'overlap: none'",
        )


def _on_gpus(scenario: Scenario) -> bool:
    return bool(_given(scenario, "kind", "server_device") - {"cpu"})


def _given(scenario: Scenario, *keys: str) -> set[str]:
    """Return what is written for these keys of ``device``, for all workers, for a data centre or for one worker."""
    sites = scenario.topology.data_centers
    of_workers = (device for site in sites for device in site.worker_devices.values())
    devices = [scenario.device, *(site.device for site in sites), *of_workers]
    return {value for device in devices for key in keys if (value := getattr(device, key, None)) is not None}


def real_compute_needs_values(scenario: Scenario) -> Found:
    if scenario.training.compute == "real" and scenario.training.model.declared.takes == NOTHING:
        yield Violation(
            ("training", "compute"),
            "'real' needs a model with values, and this one has only shapes",
            "write 'modelled', and run it with 'on: simulate'",
        )


def steps_are_computed_here(scenario: Scenario) -> Found:
    """How a step is computed has no effect where nothing is computed, or a script computes."""
    training = scenario.training
    if training.compute != "modelled" and not is_scripted(scenario):
        return
    where = "a script computes its own steps" if is_scripted(scenario) else "nothing is computed"
    for key in ("precision", "accumulate", "compile", "deterministic"):
        if getattr(training, key) != type(training).model_fields[key].default:
            yield Violation(("training", key), f"has no effect here: {where}", "remove it")


def loading_needs_samples(scenario: Scenario) -> Found:
    if scenario.training.loading.declared.loads and (scenario.training.compute == "modelled" or is_scripted(scenario)):
        yield Violation(
            ("training", "loading"),
            "there are no samples to load: nothing is computed, or the script has its own data",
            "remove it",
        )


def loading_precedes_a_step(scenario: Scenario) -> Found:
    if scenario.training.loading.declared.loads and overlaps(scenario):
        yield Violation(
            ("training", "loading"),
            "'overlap: layers' begins a step before its batch can be waited for",
            "write 'overlap: none'",
        )


def samples_are_at_a_worker(scenario: Scenario) -> Found:
    source = getattr(scenario.training.loading.options, "source", "")
    if not source:
        return
    sites = {site.name for site in generated(scenario.topology).data_centers if site.workers or site.central}
    if source not in sites:
        yield Violation(
            ("training", "loading", "source"),
            "is no data centre with a worker",
            "name one that has, or leave it out for a store beside every worker",
        )


def accuracy_needs_values(scenario: Scenario) -> Found:
    if scenario.training.compute == "modelled" and scenario.training.target_accuracy is not None:
        yield Violation(
            ("training", "target_accuracy"),
            "has no effect when training.compute is 'modelled'",
            "there is no accuracy without values; remove it",
        )


def options_are_good(scenario: Scenario) -> Found:
    """The owners of the options know their rules."""
    for at, technique in techniques_of(scenario):
        yield from technique.violations(*at)
