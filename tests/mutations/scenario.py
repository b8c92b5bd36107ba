"""What a user writes and what becomes of it: scenario, Plan, topologies, traces."""

from __future__ import annotations

from typing import Any

import networkx as nx

from tests.mutations.mutation import Mutation, always, edit, instead

BAD, BUILD = ("tests/scenario/test_bad.py",), ("tests/plan/test_build.py",)
TIMEOUTS, PACE = ("tests/plan/test_timeouts.py",), ("tests/plan/test_pace.py",)


def _one_bit_less(before: Any) -> Any:
    return lambda text: before(text) * 1.001


READ_AGAIN = ("tests/scenario/test_good.py::test_overrides_stay_with_the_scenario_that_they_are_given_to",)
MUTATIONS: dict[str, Mutation] = {
    "overrides stay in a scenario that is read again": Mutation(
        "testbed.scenario.reading.document:_copy", instead(lambda node: node), READ_AGAIN
    ),
    "a scenario that is read again has the places of another": Mutation(
        "testbed.scenario.reading.document:_document", lambda before: lambda text, source: before(text, "x"), READ_AGAIN
    ),
    "misspelt words get no suggestion": Mutation(
        "testbed.scenario.reading.suggest:suggestion", always(""), ("tests/scenario/test_suggest.py",)
    ),
    "rates are a thousandth too large": Mutation(
        "testbed.units:parse_rate", _one_bit_less, ("tests/units/test_units.py",)
    ),
    "links to nowhere are accepted": Mutation("testbed.scenario.topology.structure:_links", always(()), BAD),
    "deadlines are for models of samples of usual size": Mutation(
        "testbed.plan.timeouts:model_bytes",
        edit("if sample is None or", "if True or"),
        ("tests/plan/test_model_bytes.py", *TIMEOUTS),
    ),
    "networks may be in pieces": Mutation("testbed.scenario.topology.structure:_unreachable", always(()), BAD),
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
    "routes are those of fewest links": Mutation(
        "topologies.paths:weight", instead(lambda delay_s, routing: 1), (*BUILD, "tests/plan/test_routes.py")
    ),
    "queues are four times as long": Mutation(
        "testbed.plan.links:default_queue_bytes", lambda before: lambda *of: 4 * before(*of), BUILD
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
        "testbed.plan.placement:_site_nodes", edit("plan_of(device, site.device)", "plan_of(device)"), BUILD
    ),
    "step times do not vary": Mutation("testbed.plan.pace:Pacer._factor", always(1.0), PACE),
    "slow-downs are over at once": Mutation(
        "testbed.plan.pace:slowed_s", instead(lambda work_s, slowdown, begin_s: work_s), PACE
    ),
    "deadlines ignore local steps": Mutation(
        "testbed.plan.timeouts:_work", instead(lambda scenario, step_s: (step_s, step_s)), TIMEOUTS
    ),
    "routing beside a generator has no effect": Mutation(
        "testbed.scenario.topology.graphs:generated", edit('"routing", ', ""), ("tests/plan/test_routes.py",)
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
        "testbed.plan.silence:cut_off", edit("*_down(link.rate_trace)", ""), ("tests/plan/test_silence.py",)
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
