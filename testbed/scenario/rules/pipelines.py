"""Rules of pipelines. All other rules see the paradigm of a pipeline's replicas instead (``exchanging``)."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.aggregation import AGGREGATION
from testbed.codec.options import CODECS
from testbed.policy.collective.options import AFTERWARDS, INSIDE, SERVERS
from testbed.policy.gossip import ALGORITHMS, GossipOptions
from testbed.policy.gossip.graphs import GRAPHS
from testbed.policy.overlay import OVERLAYS
from testbed.policy.sync import SYNC
from testbed.scenario.pipeline import exchanging, ground_of, pipeline_of, stages_of
from testbed.scenario.reading.violations import Violation
from testbed.scenario.rules.facts import Found, is_scripted, kinds, lan_rounds_option, overlaps, pulls_rows, reliable
from testbed.scenario.schema import Scenario
from testbed.scenario.topology.topology import generated
from testbed.training.options import LOADINGS


def stages_have_workers(scenario: Scenario) -> Found:
    pipeline = pipeline_of(scenario)
    if pipeline is None:
        return
    sites = generated(scenario.topology).data_centers
    workers = sum(site.workers for site in sites)
    stages = stages_of(scenario)
    if workers == 0 or workers % stages:
        divisors = [count for count in range(1, workers + 1) if workers % count == 0]
        fewer = [count for count in divisors if count < stages][-1:]
        more = [count for count in divisors if count > stages][:1]
        offered = " or ".join(f"'stages: {count}'" for count in (*fewer, *more)) or "'stages: 1'"
        problem = f"{workers} workers cannot be divided into replicas of {stages} stages"
        yield Violation(("paradigm", "stages"), problem, f"write {offered}, or other numbers of workers")
        return
    idle = [site.name for site in sites if site.central and not site.workers]
    if idle:
        problem = f"{idle[0]} is the central data centre but has no worker to evaluate the pipeline's model"
        yield Violation(("topology", "data_centers"), problem, "write 'central: true' where workers are")
    for problem, cure in pipeline.placement.declared(pipeline.placement.options).problems(ground_of(scenario)):
        yield Violation(("paradigm", "placement"), problem, cure)


def micro_batches_cut_the_batch(scenario: Scenario) -> Found:
    pipeline = pipeline_of(scenario)
    if pipeline is None:
        return
    batch = scenario.training.batch_size
    if pipeline.micro_batches > batch:
        problem = f"{pipeline.micro_batches} micro-batches of a batch of {batch} samples"
        yield Violation(("paradigm", "micro_batches"), problem, f"write {batch} or less, or a larger training.batch")
    if scenario.training.accumulate > 1:
        problem = "cuts a batch, but the pipeline already cuts it into micro-batches"
        cure = f"write 'accumulate: 1' and 'paradigm: {{micro_batches: {scenario.training.accumulate}}}'"
        yield Violation(("training", "accumulate"), problem, cure)
    schedule = pipeline.schedule.declared(pipeline.schedule.options)
    for problem, cure in schedule.problems(stages_of(scenario), pipeline.micro_batches):
        yield Violation(("paradigm", "schedule"), problem, cure)


def cuts_are_of_all_parts(scenario: Scenario) -> Found:
    pipeline = pipeline_of(scenario)
    if pipeline is None or not pipeline.cuts:
        return
    parts = stages_of(scenario) * pipeline.schedule.declared(pipeline.schedule.options).chunks()
    words = pipeline.cuts.split()
    numbers = [int(word) for word in words if word.isdecimal()]
    ascend = numbers == sorted(set(numbers)) and 0 not in numbers
    if len(numbers) < len(words) or len(numbers) != parts - 1 or not ascend:
        problem = f"'{pipeline.cuts}' are not {parts - 1} ascending numbers, which cut a model into {parts} parts"
        yield Violation(
            ("paradigm", "cuts"), problem, f"write e.g. '{' '.join(map(str, range(1, parts)))}', or nothing"
        )


def activations_pass_through_stateless_shapes(scenario: Scenario) -> Found:
    pipeline = pipeline_of(scenario)
    if pipeline is None:
        return
    for name in ("activations", "activation_gradients"):
        codec = getattr(pipeline, name)
        if codec.declared.by_shape and not codec.declared.summed:
            fitting = kinds(CODECS, lambda each: not each.by_shape or each.summed)
            problem = f"'{codec.kind}' is for parameters, which it treats by their shapes"
            yield Violation(("paradigm", name), problem, f"write {fitting}")
        elif codec.declared.by_shape and scenario.training.compute == "modelled":
            problem = f"'{codec.kind}' treats activations by their shapes, but modelled ones have only sizes"
            fitting = kinds(CODECS, lambda each: not each.by_shape)
            yield Violation(("paradigm", name), problem, f"write {fitting}")


def feedback_is_of_codecs(scenario: Scenario) -> Found:
    pipeline = pipeline_of(scenario)
    if pipeline is None or not pipeline.error_feedback:
        return
    if pipeline.activations.declared.exact and pipeline.activation_gradients.declared.exact:
        problem = "adds what codecs of activations leave out, but no such codec is chosen"
        cure = "remove it, or write a codec, e.g. 'paradigm: {activations: fp16}'"
        yield Violation(("paradigm", "error_feedback"), problem, cure)


def steps_are_made_together(scenario: Scenario) -> Found:
    if pipeline_of(scenario) is not None:
        for place, problem, cure in _unfit(scenario):
            yield Violation(place, problem, cure)


def _unfit(scenario: Scenario) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Yield the settings that do not go with steps of several workers: place, reason and cure."""
    exchange = exchanging(scenario)
    sync = scenario.sync.tier1
    if any(not tier.declared.waits or tier.declared.assigns_steps or tier.declared.lags for _, tier in scenario.sync):
        problem = "workers make different numbers of steps, but those of one pipeline make each step together"
        fitting = kinds(SYNC, lambda each: each.waits and not each.assigns_steps and not each.lags)
        yield ("sync",), problem, f"write sync: {fitting}"
    elif sync.declared.streaming(sync.options) is not None:
        problem = "fragments are parts of a whole model, but a stage has only a part of it"
        yield ("sync",), problem, f"write 'sync: {{kind: {sync.kind}}}' without fragments and overlap_steps"
    if getattr(scenario.optimizer.options, "clip_norm", 0):
        problem = "is the norm of the gradient of the whole model, but each stage has only a part of it"
        yield ("optimizer", "clip_norm"), problem, "write 'clip', which clips each element, or remove it"
    has_servers = exchange.paradigm.declared.tiers > 0  # without, no order has an effect
    if has_servers and overlaps(exchange):
        yield ("order",), "'overlap: layers' is for steps of a single worker", "write 'overlap: none'"
    if getattr(exchange.paradigm.options, "overlap", AFTERWARDS) != AFTERWARDS:
        problem = "gradients are complete when the last micro-batch has gone backward"
        yield ("paradigm", "replicas", "overlap"), problem, f"write '{AFTERWARDS}'"
    inside = INSIDE.get(getattr(exchange.paradigm.options, "inside", SERVERS))
    if inside is not None and (inside.library or exchange.paradigm.declared.tiers):
        problem = "sums over all workers of a data centre, but these hold several stages"
        yield ("paradigm", "replicas", "inside"), problem, "remove it"
    yield from _unfit_gossip(exchange)
    if has_servers and scenario.order.declared.best_effort:
        problem = "weighs blocks by the loss, which only the last stage sees"
        yield ("order",), problem, f"write order: {reliable()}"
    if pulls_rows(exchange):
        yield ("paradigm", "replicas", "pull"), "rows follow from samples, which only one stage reads", "write 'all'"
    yield from _unfit_job(scenario)


def _unfit_gossip(exchange: Scenario) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Yield the settings that do not fit replicas that gossip: all stages must mix and end in the same rounds."""
    options = exchange.paradigm.options
    if not isinstance(options, GossipOptions):
        return
    if ALGORITHMS[options.algorithm].pairwise:
        problem = "pairs meet whenever a worker has made a step, but the stages of a replica make each step together"
        fitting = " or ".join(repr(name) for name, each in ALGORITHMS.items() if not each.pairwise)
        yield ("paradigm", "replicas", "algorithm"), problem, f"write {fitting}"
    if options.graph not in GRAPHS:
        problem = "neighbours by the data centres' links differ from stage to stage"
        yield ("paradigm", "replicas", "graph"), problem, f"write {' or '.join(map(repr, GRAPHS))}"
    if option := lan_rounds_option(exchange.sync.tier2):
        problem = "counts rounds inside a data centre, but the replicas of each stage lie in others"
        yield ("sync", "tier2", option), problem, f"write '{option}: 1'"


def _unfit_job(scenario: Scenario) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Yield the settings that do not fit a pipeline, whatever the exchange of its replicas."""
    if any(overlay.declared.relays for _, overlay in scenario.overlay):
        fitting = kinds(OVERLAYS, lambda each: not each.relays)
        yield ("overlay",), "relays serve all workers, but only some hold a stage's parameters", f"write {fitting}"
    if any(not rule.declared.sums for _, rule in scenario.aggregation):
        problem = "compares whole contributions, but each stage has only a part of them"
        yield ("aggregation",), problem, f"write '{AGGREGATION.default}'"
    if LOADINGS[scenario.training.loading.kind].loads:
        problem = "loads whole samples, but stages read parts of them"
        yield ("training", "loading"), problem, f"write '{LOADINGS.default}'"
    if scenario.training.compile:
        yield ("training", "compile"), "compiles whole models, but a worker has only one stage", "write false"
    if scenario.recovery.on_failure == "continue":
        problem = "a lost worker takes its stage with it, and its replica cannot go on without a whole model"
        yield ("recovery", "on_failure"), problem, "write 'restart', with 'checkpoint: {every: 10}', or 'abort'"
    if scenario.recovery.on_nan == "skip":
        yield ("recovery", "on_nan"), "leaves out the gradient of one stage, but not of the others", "write 'abort'"
    if is_scripted(scenario):
        yield ("workload",), "a script computes whole steps by itself", "write 'training' with a model by name"
