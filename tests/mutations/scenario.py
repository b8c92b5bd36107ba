"""What a user writes and what becomes of it: scenario, Plan, topologies, traces."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import networkx as nx

from tests.mutations.mutation import Mutation, always, edit, instead

BAD, BUILD = ("tests/scenario/test_bad.py",), ("tests/plan/test_build.py",)
OVERRIDES, LINKS = ("tests/scenario/test_overrides.py",), ("tests/scenario/test_links_and_background.py",)
SWEEPS, SCRIPTS = ("tests/execution/test_sweep_settings.py",), ("tests/engine/script/test_script.py",)
CODE = ("tests/scenario/test_code.py",)
TIMEOUTS, PACE = ("tests/plan/test_timeouts.py",), ("tests/plan/test_pace.py",)


def _one_bit_less(before: Any) -> Any:
    return lambda text: before(text) * 1.001


READ_AGAIN = ("tests/scenario/test_good.py::test_overrides_stay_with_the_scenario_that_they_are_given_to",)
MUTATIONS: dict[str, Mutation] = {
    "overrides stay in a scenario that is read again": Mutation(
        "testbed.scenario.reading.document:copied", instead(lambda node: node), READ_AGAIN
    ),
    "a scenario that is read again has the places of another": Mutation(
        "testbed.scenario.reading.document:_document", lambda before: lambda text, source: before(text, "x"), READ_AGAIN
    ),
    "what faults do to links and devices is not warned of": Mutation(
        "testbed.plan.build:build_plan",
        edit("warnings_for(scenario, faulty_network, slowed_nodes)", "warnings_for(scenario, network, nodes)"),
        LINKS,
    ),
    "misspelt words get no suggestion": Mutation(
        "testbed.scenario.reading.suggest:suggestion", always(""), ("tests/scenario/test_suggest.py",)
    ),
    "rates are a thousandth too large": Mutation(
        "testbed.units:parse_rate", _one_bit_less, ("tests/units/test_units.py",)
    ),
    "links to nowhere are accepted": Mutation("testbed.scenario.topology.topology:_links", always(()), BAD),
    "deadlines are for models of samples of usual size": Mutation(
        "testbed.plan.timeouts:model_bytes",
        edit("if sample is None or", "if True or"),
        ("tests/plan/test_model_bytes.py", *TIMEOUTS),
    ),
    "networks may be in pieces": Mutation("testbed.scenario.topology.topology:_unreachable", always(()), BAD),
    "models are averaged by algorithms of gradients": Mutation(
        "testbed.scenario.rules.synchronisation:_above_gradients",
        always(()),
        ("tests/scenario/test_sync_rules.py", *BAD),
    ),
    "mixed options of local steps are accepted": Mutation(
        "testbed.scenario.rules.synchronisation:_above_local_steps",
        always(()),
        ("tests/scenario/test_sync_rules.py", *BAD),
    ),
    "the first override wins": Mutation(
        "testbed.scenario.overrides:apply",
        lambda before: lambda root, texts, *rest: before(root, texts[::-1], *rest),
        ("tests/scenario/test_good.py",),
    ),
    "a tier of an axis that is set leaves the other without a value": Mutation(
        "testbed.scenario.overrides:_as_mapping", edit("if axis is None:", "if True:"), OVERRIDES
    ),
    "items that are set together stay one": Mutation(
        "testbed.scenario.overrides:_put", edit("copied(value)", "value"), OVERRIDES
    ),
    "numbers of NumPy are unknown": Mutation(
        "testbed.scenario.overrides:python_value", edit('hasattr(value, "tolist")', "False"), OVERRIDES
    ),
    "texts of lines are plain within brackets": Mutation(
        "testbed.scenario.reading.document:_in_flow", edit("quoted or _NOT_PLAIN.search(text)", "quoted"), OVERRIDES
    ),
    "the second of two lists of a path wins": Mutation("testbed.scenario.sweep:_no_path_twice", always(None), SWEEPS),
    "a value twice is two samples": Mutation("testbed.scenario.sweep:_no_value_twice", always(None), SWEEPS),
    "an option takes a whole zip away": Mutation(
        "testbed.scenario.sweep:_without",
        lambda before: lambda axis, places: axis if before(axis, places) == axis else None,
        SWEEPS,
    ),
    "code that has changed since its import has the hash of the new": Mutation(
        "testbed.axes:Axis.code_of", edit("sha256 != self._imported[kind]", "False"), CODE
    ),
    "an option that no scenario could give is found when it is read": Mutation(
        "testbed.axes:_unreadable", always(""), CODE
    ),
    "exceptions of techniques from outside have no place": Mutation(
        "testbed.axes:place_in_code", always(""), ("tests/api/test_api.py",)
    ),
    "simulations take what a notebook has set of torch": Mutation(
        "testbed.execution.torch_settings:settings_of_a_run",
        instead(nullcontext),
        ("tests/api/test_api.py::test_a_simulation_depends_on_nothing_that_its_process_has_set_of_torch",),
    ),
    "limits of quantities are not kept to": Mutation(
        "testbed.scenario.reading.quantities:within",
        lambda before: lambda quantity, *limits: quantity,
        ("tests/scenario/test_axes.py",),
    ),
    "a comma makes two values of one of Python": Mutation(
        "testbed.api:_with_commas_quoted", instead(lambda text: text), ("tests/api/test_api.py",)
    ),
    "a resolved scenario keeps what its script brings": Mutation(
        "testbed.scenario.schema:without_own", instead(lambda resolved: resolved), SCRIPTS
    ),
    "scripts of strangers may lie anywhere": Mutation(
        "testbed.scenario.sections.workload:_script",
        edit("not allows_code(info)", "False"),
        SCRIPTS,
    ),
    "large files of a program are read": Mutation(
        "testbed.scenario.sections.program:_digest_of",
        lambda before: edit("size_bytes > LARGEST_READ_BYTES", "False")(before.__wrapped__),
        ("tests/execution/programs/test_programs.py",),
    ),
    "codecs of a tier that is not there are accepted": Mutation(
        "testbed.scenario.rules.facts:sums_inside_data_centers",
        always(True),
        ("tests/scenario/test_rules.py",),
    ),
    "data centres of different size are found by the engine": Mutation(
        "testbed.scenario.rules.paradigms:_workers", always({}), ("tests/scenario/test_rules.py",)
    ),
    "a centre that is one no longer keeps its servers": Mutation(
        "testbed.scenario.topology.use:_as_central",
        lambda before: lambda site, central: {"central": site.name == central},
        ("tests/scenario/test_topologies.py",),
    ),
    "models are replaced by a rate": Mutation(
        "testbed.scenario.topology.links:changed", edit("trace.model is None", "True"), LINKS
    ),
    "streams leave traces alone": Mutation(
        "testbed.scenario.topology.use:_with_streams",
        edit("link.rate_trace is not None", "False"),
        ("tests/scenario/test_topologies.py",),
    ),
    "multiples of nothing are accepted": Mutation(
        "testbed.scenario.topology.links:_multiples_of_nothing", always(()), LINKS
    ),
    "tables in one text have no bounds": Mutation(
        "testbed.scenario.sections.tables:_LONGEST_S", instead(float("inf")), ("tests/scenario/test_step_times.py",)
    ),
    "equal files are one module": Mutation(
        "testbed.axes:_module_of_file",
        edit("f'{path}:{sha256_of(path)}'", "sha256_of(path)"),
        ("tests/scenario/test_code.py",),
    ),
    "faults pick more than there are": Mutation(
        "testbed.plan.faults:build_faults", edit("fault.pick is not None", "False"), ("tests/faults/test_plan.py",)
    ),
    "rounds that never cross the WAN are not said": Mutation("testbed.plan.warnings:_lan_rounds", always(()), BUILD),
    "machines of no data centre are accepted": Mutation(
        "testbed.plan.settings:cluster_of", edit("name not in sizes", "False"), BUILD
    ),
    "routes are those of fewest links": Mutation(
        "topologies.graph:_link_cost", instead(lambda delay_s, routing: 1), (*BUILD, "tests/plan/test_routes.py")
    ),
    "emulated networks of very many sites lack paths": Mutation(
        "testbed.plan.network:build_network",
        edit('back_end != "simulate" or ', ""),
        ("tests/plan/test_routes.py::test_real_networks_have_all_paths_beforehand",),
    ),
    "a trace goes on at some bits a second": Mutation(
        "testbed.plan.network:_series",
        edit("bounded(_divided(point.value, scale))", "_divided(point.value, scale)"),
        ("tests/plan/test_build.py::test_a_rate_that_the_scale_makes_too_low_is_an_outage",),
    ),
    "queues are four times as long": Mutation(
        "testbed.plan.network:default_queue_bytes", lambda before: lambda *of: 4 * before(*of), BUILD
    ),
    "ranks count over all roles": Mutation(
        "testbed.plan.placement:build_nodes",
        edit(
            "ranks[node.role] += 1",
            "ranks.update(dict.fromkeys(('worker', 'server', 'global_server', 'scheduler', 'replica'), 1))",
        ),
        BUILD,
    ),
    "devices ignore their site": Mutation(
        "testbed.plan.placement:_site_nodes", edit(", site.device)\n", ", None)\n"), BUILD
    ),
    "a row of a worker comes before its own setting": Mutation(
        "testbed.plan.placement:_site_nodes",
        edit("*of_site, row, changes)", "*of_site, changes, row)"),
        ("tests/scenario/test_step_times.py",),
    ),
    "times of layers stay where the step time is another": Mutation(
        "testbed.plan.placement:_changed",
        edit('if "step_time" in found', "if False"),
        ("tests/scenario/test_step_times.py",),
    ),
    "step times do not vary": Mutation("testbed.plan.pace:Pacer._factor", always(1.0), PACE),
    "slow-downs are over at once": Mutation(
        "testbed.plan.pace:slowed_s", instead(lambda work_s, slowdown, begin_s: work_s), PACE
    ),
    "deadlines ignore local steps": Mutation(
        "testbed.plan.timeouts:_work", instead(lambda scenario, step_s: (step_s, step_s)), TIMEOUTS
    ),
    "routing beside a generator has no effect": Mutation(
        "testbed.scenario.topology.topology:generated", edit('"routing", ', ""), ("tests/plan/test_routes.py",)
    ),
    "a shared link is each one's own": Mutation("testbed.plan.timeouts:_taking_turns_s", always(0.0), TIMEOUTS),
    "delays are those before training": Mutation(
        "testbed.plan.timeouts:_seconds", edit("longest_delay_s(link)", "link.delay_s"), TIMEOUTS
    ),
    "deadlines may be out of order": Mutation("testbed.plan.timeouts:_out_of_order", always(()), TIMEOUTS),
    "deadlines may be as long as they come out": Mutation("testbed.plan.timeouts:too_long", always(()), TIMEOUTS),
    "outages one after the other are two short ones": Mutation(
        "testbed.plan.silence:merged", instead(list), ("tests/plan/test_silence.py",)
    ),
    "rates of 0 are no silence": Mutation(
        "testbed.plan.silence:outages",
        edit("link.state_trace, link.rate_trace", "link.state_trace,"),
        ("tests/plan/test_silence.py",),
    ),
    "traces go round from the wrong place": Mutation(
        "topologies.traces.change:shifted",
        edit("offset_s % trace.period_s", "0.0"),
        ("tests/topologies/test_traces.py",),
    ),
    "resampled traces take all steps as equally long": Mutation(
        "topologies.traces.change:resampled",
        edit("spans * trace.values", "trace.values"),
        ("tests/topologies/test_traces.py",),
    ),
    "a fat tree has one path between racks": Mutation(
        "topologies.generators:FatTree.build",
        lambda before: lambda self: nx.minimum_spanning_tree(before(self)),
        ("tests/topologies/test_generators.py", "tests/scenario/test_topologies.py"),
    ),
    "light is ten times as fast": Mutation(
        "topologies.graph:fibre_delay_s",
        lambda before: lambda *of: before(*of) / 10,
        ("tests/topologies/test_readers.py", "tests/topologies/test_built_in.py"),
    ),
}
