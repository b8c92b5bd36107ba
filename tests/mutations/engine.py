"""Roles: DGT's two ends, overlays, collectives, gossip, overlap, key-value store, scripts, checkpoints."""

from __future__ import annotations

from typing import Any

import torch

from testbed.engine.aggregation_weights import contribution_weight
from tests.mutations.mutation import Mutation, always, edit, instead

DGT = ("tests/engine/dgt/test_rounds.py",)
RESUMED = ("tests/engine/checkpoint/test_every_technique.py",)
FAILURES, GEOMX = ("tests/kvstore/test_failures.py",), ("tests/kvstore/test_geomx.py",)
WORLDS_OF_SCRIPTS = ("tests/kvstore/test_worlds.py",)
SCRIPT, OVERLAY = ("tests/engine/script/test_script.py",), ("tests/engine/overlay/test_overlays.py",)
CHECKPOINT, COLLECTIVES = ("tests/engine/checkpoint/test_checkpoint.py",), ("tests/engine/collectives/test_topk.py",)
LOCAL_STEPS = ("tests/engine/localsteps/test_without_servers.py",)
INSIDE = ("tests/engine/collectives/test_inside.py",)
COMPRESSED = ("tests/engine/gossip/test_compressed.py",)
GOSSIP, GOLDEN = ("tests/engine/gossip/test_gossip.py",), ("tests/engine/sync/test_golden.py",)


def _zeros(before: Any) -> Any:
    return lambda block, options: tuple(torch.zeros_like(part) for part in before(block, options))


BASES = ("tests/engine/sync/test_bases.py",)
COLLECTION = ("tests/engine/test_collection.py",)
SLICES = ("tests/engine/test_slices.py",)
ROWS = ("tests/engine/test_rows.py",)
MUTATIONS: dict[str, Mutation] = {
    "an optimizer of workers without servers steps with the sum": Mutation(
        "testbed.engine.collectives.worker:AllReduceWorker._take_step",
        edit("scaled / self._mean_of", "scaled"),
        LOCAL_STEPS,
    ),
    "hierarchical top-k leaves elements out of rounds inside a data centre": Mutation(
        "testbed.engine.collectives.roles:_SumMaker.sum_of",
        edit("or (hierarchical and self._tier == 1)", ""),
        LOCAL_STEPS,
    ),
    "a slow evaluation makes steps longer": Mutation(
        "testbed.engine.worker:Worker._round",
        edit("result, worked_s,", "result, pushed_s - started_s,"),
        ("tests/engine/test_worker_reports.py",),
    ),
    "who joins begins the schedule of its learning rate anew": Mutation(
        "testbed.training.optimizers.key:ModelOptimizer.begin_at", always(None), ("tests/faults/test_join.py",)
    ),
    "the time at relays counts as that of a transfer": Mutation(
        "testbed.engine.overlay.member:_KeptContributions.kept_s", always([]), OVERLAY
    ),
    "a checkpoint mixes in what comes early": Mutation(
        "testbed.engine.streaming:StreamedSteps.receive_pending",
        edit("self._keeps = True", "self._keeps = False"),
        ("tests/engine/localsteps/test_streaming.py",),
    ),
    "optimizer steps without servers take no row of the table": Mutation(
        "testbed.engine.collectives.step:WholeStep.__call__",
        edit("optimizer_work([self._optimizers[key] for key in gradients], round_)", 'Work("optimizer", round_)'),
        ("tests/simulation/test_costs.py",),
    ),
    "no worker evaluates after the first one is lost": Mutation(
        "testbed.engine.evaluation:Evaluation.without", always(None), ("tests/faults/test_continue.py",)
    ),
    "who comes back evaluates beside the one that does": Mutation(
        "testbed.engine.evaluation:Evaluation.joins", always(None), ("tests/faults/test_continue.py",)
    ),
    "backups of a lost process stay": Mutation("testbed.engine.root_store:RootStore.on_joined", always(None), BASES),
    "a snapshot that waits at a checkpoint is taken when the run goes on": Mutation(
        "testbed.engine.evaluation:Evaluation.load_state",
        edit('float(state.get("taken_s", self._world.now()))', "self._world.now()"),
        CHECKPOINT,
    ),
    "times of another run's clock are taken for this one's": Mutation(
        "testbed.execution.resume:_mark", always(None), CHECKPOINT
    ),
    "training before a checkpoint takes no time": Mutation(
        "testbed.engine.evaluation:trained_before", always({"resumed_round": 11}), CHECKPOINT
    ),
    "who was lost before a checkpoint is forgotten": Mutation(
        "testbed.engine.scheduler:MembershipLedger.record_missing",
        always(None),
        ("tests/engine/checkpoint/test_members.py::test_who_was_lost_stays_lost",),
    ),
    "who had left before a checkpoint was lost": Mutation(
        "testbed.engine.scheduler:MembershipLedger.members",
        edit("if name in self._left)", "if False)"),
        ("tests/engine/checkpoint/test_members.py::test_who_had_left_has_left_in_the_resumed_run",),
    ),
    "rows of the batch before are pulled": Mutation(
        "testbed.engine.worker:Worker._wanted", edit("rows(round_ + 1)", "rows(round_)"), ROWS
    ),
    "a model is evaluated with rows of different rounds": Mutation(
        "testbed.engine.evaluation:Evaluation.needs_model", always(False), ROWS
    ),
    "a checkpoint forgets the rows that a child has": Mutation(
        "testbed.codec.rows:TableCodec.load_state", always(None), RESUMED
    ),
    "keys of every codec are cut": Mutation("testbed.engine.slicing:may_be_cut", always(True), SLICES),
    "slices do not depend on the model": Mutation("testbed.policy.order.fifo:auto_bytes", always(4 << 20), SLICES),
    "keys are never cut by default": Mutation("testbed.engine.slicing:may_be_cut", always(False), SLICES),
    "all codecs that scripts choose cut keys as the first one": Mutation(
        "testbed.engine.slicing:_order", edit("(_order, script_codec)", "(_order, None)"), SLICES
    ),
    "barriers wait no longer than nodes take to meet": Mutation(
        "testbed.engine.membership:Membership.barrier",
        edit("max(self._timeouts.rendezvous_s, self._timeouts.step_deadline_s)", "self._timeouts.rendezvous_s"),
        ("tests/engine/collectives/test_modelled.py",),
    ),
    "a resumed script begins with the local steps of the first round": Mutation(
        "testbed.engine.script.worker:ScriptWorker.resume",
        edit('state["step"], self._declared_steps(self.rounds)', 'state["step"], self._declared_steps(0)'),
        ("tests/engine/checkpoint/test_scripts.py",),
    ),
    "fragments of a checkpoint stay in main memory": Mutation(
        "testbed.engine.streaming:StreamedSteps.load_state",
        edit("outer[str(key)].to(device)", "outer[str(key)]"),
        ("tests/engine/localsteps/test_streaming.py",),
    ),
    "a server registers before its workers": Mutation(
        "testbed.engine.membership:Membership.join", edit("if self._collected:", "if False:"), COLLECTION
    ),
    "a server does not pass on that all are ready": Mutation(
        "testbed.engine.membership:Membership._on_ready", edit("if self._collected:", "if False:"), COLLECTION
    ),
    "DGT drops late blocks": Mutation("testbed.engine.dgt.receiver:BlockReceiver._on_late", always(None), DGT),
    "DGT does not add late blocks": Mutation(
        "testbed.engine.dgt.receiver:Assembly.values", edit("self._rows[block] += values", "pass"), DGT
    ),
    "DGT adds late blocks of older rounds": Mutation(
        "testbed.engine.dgt.receiver:BlockReceiver._on_late", edit("message.round != last.push.round or ", ""), DGT
    ),
    "DGT closes a round without waiting": Mutation(
        "testbed.engine.dgt.receiver:BlockReceiver._on_push",
        edit("self._options.late == dgt.HEURISTIC_DROP", "True"),
        DGT,
    ),
    "DGT waits for no block without a deadline": Mutation(
        "testbed.engine.dgt.receiver:BlockReceiver._on_push",
        edit("or self._options", "or self._options.deadline <= 0 or self._options"),
        DGT,
    ),
    "what is decoded of all workers is remembered as one": Mutation(
        "testbed.engine.collectives.sums:GatheredSum.__call__",
        edit("self._codec if gradient.is_meta else self._decoder_of(worker)", "self._codec"),
        COMPRESSED,
    ),
    "a receiver of models forgets at a checkpoint what its codec has decoded": Mutation(
        "testbed.engine.gossip.compressed:KnownModel.state",
        edit(' | under("decoder", self._decoder.state())', ""),
        COMPRESSED,
    ),
    "receivers of models decode as if they had sent them": Mutation(
        "testbed.engine.gossip.compressed:Compression._received_from",
        edit("self._names[source]", "self._world.node"),
        COMPRESSED,
    ),
    "a sparse sum that overflows is an error of this project": Mutation(
        "testbed.codec.memory:take_finite", edit("except NonFinite", "except KeyError"), COLLECTIVES
    ),
    "chunks and sums pass through a codec with a memory": Mutation(
        "testbed.engine.collectives.roles:_SumMaker.sum_of",
        edit(" or declared.has_memory", ""),
        ("tests/engine/collectives/test_training.py",),
    ),
    "DGT asks for nothing again": Mutation(
        "testbed.engine.dgt.receiver:BlockReceiver._give_up", edit("!= dgt.RETRANSMIT", "!= ''"), DGT
    ),
    "DGT's keys leave together": Mutation(
        "testbed.engine.dgt.sender:BlockSender.send", edit("if before is not None", "if False"), DGT
    ),
    "DGT's next key does not wait for blocks": Mutation(
        "testbed.engine.dgt.sender:BlockSender._send_push",
        edit("await self._world.drain(to)", "pass"),
        ("tests/engine/dgt/test_training.py",),
    ),
    "DGT sends empty blocks": Mutation("testbed.engine.dgt.sender:block_parts", _zeros, DGT),
    "DGT forgets what 4 bits lose": Mutation(
        "testbed.engine.dgt.sender:BlockSender._keep", edit("== dgt.FOUR_BITS", "== ''"), DGT
    ),
    "DGT without its loss": Mutation(
        "testbed.engine.worker:needs_loss", always(False), ("tests/engine/dgt/test_training.py",)
    ),
    "P3 waits for all values before the next round": Mutation(
        "testbed.engine.pipeline:PipelinedWorker._backward",
        edit("reversed(range(len(self._keys)))", "range(len(self._keys))"),
        ("tests/engine/p3/test_p3.py",),
    ),
    "what overtook on another path is taken first": Mutation(
        "testbed.engine.overlay.group:InOrder.arrived",
        edit(
            "self._early.pop((*where, self._taken[where] + 1), None)",
            "self._early.popitem()[1] if self._early else None",
        ),
        ("tests/engine/overlay/test_one_by_one.py",),
    ),
    "a tree waits for its children where contributions are applied one by one": Mutation(
        "testbed.engine.overlay.member:OverlayMember._ready",
        edit("if self._group.routes:", "if False:"),
        ("tests/engine/overlay/test_one_by_one.py",),
    ),
    "overlays relay for no other node": Mutation(
        "testbed.engine.overlay.member:OverlayMember._passed_on", always(False), OVERLAY
    ),
    "chunks are sent whole across data centres": Mutation(
        "testbed.engine.collectives.roles:_SumMaker._segments",
        always(1),
        ("tests/engine/collectives/test_training.py",),
    ),
    "a rank adds to the tensor that it was given": Mutation(
        "testbed.engine.collectives.buffers:Flat.write",
        edit("buffers.computed(torch.add, mine, theirs)", "mine.add_(theirs)"),
        ("tests/engine/collectives/test_collectives.py::test_what_is_given_stays_and_what_is_returned_is_the_callers",),
    ),
    "what servers say stays with the first worker of a data centre": Mutation(
        "testbed.engine.collectives.inside:InsideStore._hand_out",
        edit("ReplyControl(**_as_notes(told))", "ReplyControl()"),
        INSIDE,
    ),
    "the first worker tells only its own loss": Mutation(
        "testbed.engine.collectives.inside:InsideStore._gather_notes",
        edit("merge_notes([_as_notes(part) for (part,) in gathered])", "notes"),
        INSIDE,
    ),
    "a local server waits for workers that sum among themselves": Mutation(
        "testbed.engine.sync_setup:sums_inside", always(False), INSIDE
    ),
    "a chain is a tree": Mutation(
        "testbed.policy.collective.tree:chain",
        edit("(rank + 1,) if rank + 1 < size else ()", "binary(rank, size).children"),
        INSIDE,
    ),
    "a library's flags stay where they are raised": Mutation(
        "testbed.execution.distributed.inside:LibraryInside.all_gather",
        edit("bool(slots[:, -1].any())", "False"),
        ("tests/execution/distributed/test_inside.py",),
    ),
    "buckets are summed after the backward pass": Mutation(
        "testbed.engine.collectives.worker:OverlappingWorker._compute",
        edit("number not in tasks and", "number not in tasks and segment == 0 and"),
        ("tests/engine/collectives/test_training.py",),
    ),
    "workers without servers take the optimizer of local steps for the outer one": Mutation(
        "testbed.engine.sync_setup:stepped_with",
        edit("is Contribution.GRADIENT", "is not Contribution.MODEL"),
        LOCAL_STEPS,
    ),
    "rounds inside a data centre are summed over all": Mutation(
        "testbed.engine.collectives.worker:AllReduceWorker._exchange",
        edit("inside is None or", "True or"),
        LOCAL_STEPS,
    ),
    "a worker counts inside a data centre as it counts among all": Mutation(
        "testbed.engine.collectives.roles:weight_inside", instead(contribution_weight), LOCAL_STEPS
    ),
    "workers without servers make one step": Mutation(
        "testbed.engine.assigned_steps:LocalStepCounts.of", edit("self._assigned or ", ""), LOCAL_STEPS
    ),
    "HiTopK takes the sum of one data centre": Mutation(
        "testbed.engine.collectives.sums:scattered",
        edit("for indices, values in placed:", "for indices, values in placed[:1]:"),
        COLLECTIVES,
    ),
    "D-PSGD mixes half": Mutation(
        "testbed.engine.gossip.synchronous:_mixed", edit("total += weight *", "total += 0.5 * weight *"), GOSSIP
    ),
    "AD-PSGD moves the whole way": Mutation(
        "testbed.engine.gossip.asynchronous:AsynchronousGossip._answer_offers", edit("- mine) / 2", "- mine)"), GOSSIP
    ),
    "SGP ignores the weights": Mutation(
        "testbed.engine.gossip.synchronous:SynchronousGossip._mix",
        edit("self._weight = part.keep * self._weight", "self._weight = 1.0 + 0 * self._weight"),
        GOSSIP,
    ),
    "workers push models instead of changes": Mutation(
        "testbed.engine.local_work:LocalSteps._contributions", edit("is Contribution.MODEL", "is not None"), GOLDEN
    ),
    "gradients are not divided among local optimizers": Mutation(
        "testbed.engine.local_work:LocalOptimizerWork.take",
        edit("total, self._workers", "total, 1"),
        GOLDEN,
    ),
    "values that a script can no longer take are kept": Mutation(
        "testbed.engine.kvworker:KVWorker.drop", always(None), WORLDS_OF_SCRIPTS
    ),
    "scripts exchange in every step": Mutation(
        "testbed.kvstore.optimizer:GeoOptimizer._step_locally", edit("self._done < self._steps", "False"), SCRIPT
    ),
    "scripts push with weight one": Mutation(
        "testbed.kvstore.optimizer:GeoOptimizer._step_locally", edit("self._job.weight", "1.0"), SCRIPT
    ),
    "the cause of a failure is a library's line": Mutation("testbed.results.failures:is_users", always(True), FAILURES),
    "a script that hangs is not located": Mutation(
        "testbed.engine.script.watch:ScriptWatch.stacks", edit("place or self.files", "self.files"), FAILURES
    ),
    "a script's thread may fail unseen": Mutation(
        "testbed.engine.script.watch:ScriptWatch._on_thread_error",
        edit("script.fail(args.exc_value)", "pass"),
        FAILURES,
    ),
    "the last place of a killed script is not kept": Mutation(
        "testbed.engine.script.watch:ScriptWatch._on_kill", edit("is not None", "is None"), FAILURES
    ),
    "a loader's process gets its parent's signals": Mutation(
        "testbed.realtime.child:_set_forks_apart", edit("signal.SIG_DFL", "signal.SIG_IGN"), WORLDS_OF_SCRIPTS
    ),
    "GeoMX's rank is that of all": Mutation(
        "testbed.engine.script.worker:script_job",
        edit("site_rank=site.index", "site_rank=list(plan.with_role('worker')).index"),
        GEOMX,
    ),
    "saved states of an optimizer hold no moments": Mutation(
        "testbed.kvstore.geomx:GeoMXStore._load_states",
        edit("content[number]", "{'value': content[number]['value'], 'updates': 0}"),
        GEOMX,
    ),
    "averaged buffers are summed": Mutation(
        "testbed.kvstore.optimizer:GeoOptimizer.step",
        edit("(total / self._job.workers).view_as(buffer)", "total.view_as(buffer)"),
        WORLDS_OF_SCRIPTS,
    ),
    "servers are compared with workers": Mutation(
        "testbed.results.summary:_digests", edit('(finals["role"] == "worker") & ', ""), WORLDS_OF_SCRIPTS
    ),
    "a script may post without bound": Mutation(
        "testbed.engine.script.thread:ScriptThread.post",
        edit("len(waiting) >= _MOST_POSTED", "False"),
        ("tests/engine/script/test_thread.py",),
    ),
    "a script may post tensors without bound": Mutation(
        "testbed.engine.script.thread:ScriptThread.post",
        edit("waiting_bytes > _POSTED_BYTES", "False"),
        ("tests/engine/script/test_thread.py",),
    ),
    "a script that waits for its peers is taken for one that hangs": Mutation(
        "testbed.engine.script.watch:ScriptWatch._sample",
        edit("self._watch_no_more()", "pass"),
        ("tests/engine/script/test_watch.py",),
    ),
    "a script of many short turns is taken for one that hangs": Mutation(
        "testbed.engine.script.watch:ScriptWatch._sample",
        edit("self._watch_for_hang()", "pass"),
        ("tests/engine/script/test_watch.py",),
    ),
    "a handle returns its own value to be changed": Mutation(
        "testbed.kvstore.store:Handle.wait",
        edit("buffers.joined(self._value)", "self._value[0]"),
        ("tests/kvstore/test_store.py",),
    ),
    "what a script posts is carried out after its next request": Mutation(
        "testbed.engine.script.worker:ScriptWorker.run",
        edit("while thread.posted or", "while False and"),
        ("tests/engine/script/test_thread.py",),
    ),
    "scripts share the modules that lie beside them": Mutation(
        "testbed.engine.script.modules:ScriptModules._lies_beside", always(False), SCRIPT
    ),
    "a script has the arguments of its process": Mutation(
        "testbed.engine.script.thread:ScriptThread.in_place", edit("sys.argv = self._arguments", "pass"), SCRIPT
    ),
    "a script's pull returns the first value": Mutation(
        "testbed.kvstore.store:KVStore.pull", edit("if number in self._last:", "if False:"), SCRIPT
    ),
    "tensors without numbers are copied to main memory": Mutation(
        "testbed.engine.checkpoint:in_main_memory",
        edit(" and not each.is_meta", ""),
        (f"{RESUMED[0]}::test_a_run_whose_tensors_have_no_numbers_goes_on",),
    ),
    "checkpoints continue a round late": Mutation(
        "testbed.engine.checkpoint:CheckpointFiles._read",
        edit("about.round, states", "about.round + 1, states"),
        CHECKPOINT,
    ),
    "a member that is back is sent what the process before it was to be sent": Mutation(
        "testbed.engine.server:Server._is_for",
        edit("return self._codecs.get(member) is processes[member]", "return True"),
        ("tests/faults/test_join.py",),
    ),
    "a pull of a process that is lost is answered to the next one": Mutation(
        "testbed.engine.server:Server.on_members_lost",
        edit("if each != member]", "if True]"),
        ("tests/faults/test_join.py",),
    ),
    "a score that is not due has no epoch after a checkpoint": Mutation(
        "testbed.engine.evaluation:Evaluation.state", edit("self._snapshot.epoch", "0"), CHECKPOINT
    ),
    "later checkpoints that are damaged push out a new one": Mutation(
        "testbed.engine.checkpoint:complete", edit("found.index(path) + 1", "len(found)"), CHECKPOINT
    ),
    "workers at the end do not release those who wait for a checkpoint": Mutation(
        "testbed.engine.scheduler:Scheduler._on_barrier", edit(" or name == TRAINED", ""), CHECKPOINT
    ),
    "servers come to every barrier for their workers": Mutation(
        "testbed.engine.scheduler:Scheduler._on_barrier", edit("if name == TRAIN else ()", ""), COLLECTION
    ),
    "pushes of one data centre have the value that it was sent last": Mutation(
        "testbed.engine.upstream:Bases.note", edit("had.get(worker, PULL_ROUND)", "self._of_server(key)"), BASES
    ),
    "a script goes on with the servers' sums instead of its parameters": Mutation(
        "testbed.engine.script.worker:ScriptWorker._current_values",
        edit("if self._get_parameters:", "if False:"),
        ("tests/engine/checkpoint/test_scripts.py",),
    ),
    "a script's options are not looked at": Mutation("testbed.axes:refuse_values", always(None), SCRIPT),
    "a state is kept that cannot be loaded": Mutation(
        "testbed.kvstore.checkpoint:_unknown", always([]), ("tests/engine/checkpoint/test_scripts.py",)
    ),
    "a script's round ends with its last key alone": Mutation(
        "testbed.engine.script.worker:ScriptWorker._on_key",
        edit("if self._taken_keys >= (", "if key == len(self._values) - 1 or self._taken_keys >= ("),
        SCRIPT,
    ),
    "a script that leaves out a key makes no rounds": Mutation(
        "testbed.engine.script.worker:ScriptWorker.push", edit("and key in self._taken_keys", "and False"), SCRIPT
    ),
    "servers decay parameters that have no gradient": Mutation(
        "testbed.engine.root_store:RootStore.apply", edit("if not no_gradient or", "if True or"), SCRIPT
    ),
    "values that no worker has are kept": Mutation("testbed.engine.root_store:RootStore._forget", always(None), BASES),
    "a replica compensates for a delay that is not": Mutation(
        "testbed.engine.root_store:RootStore.apply",
        edit("len(holders) == 1 and not self._waits", "len(holders) == 1"),
        ("tests/faults/test_replica.py",),
    ),
    "streaming's last score is of one worker's model": Mutation(
        "testbed.engine.streaming:StreamedSteps.finish",
        edit("return True", "return False"),
        ("tests/engine/localsteps/test_streaming.py",),
    ),
    "checkpoints of any job are taken": Mutation("testbed.engine.checkpoint:job_sha256", always("0"), CHECKPOINT),
    "sparse codecs forget their residuals at a checkpoint": Mutation(
        "testbed.codec.sparse:LargeKeys.state", edit('state |= under(f"memory/{key}", content)', "pass"), RESUMED
    ),
    "late blocks are taken after a checkpoint": Mutation(
        "testbed.engine.dgt.receiver:BlockReceiver.state", edit("kept.last = None", "pass"), RESUMED
    ),
    "resumed connections forget their windows": Mutation(
        "testbed.simulation.run:Simulation._settle", edit("connections = instant.connections", "pass"), RESUMED
    ),
    "connections forget their windows at a checkpoint": Mutation(
        "testbed.simulation.tcp:TcpConnection.load_state", always(None), ("tests/simulation/test_checkpoints.py",)
    ),
    "connections over packets are made anew at a checkpoint": Mutation(
        "testbed.simulation.run:Simulation._settle",
        edit("if self._network.packets is None:", "if True:"),
        ("tests/simulation/test_checkpoints.py",),
    ),
    "a resumed server hears its workers before it has its state": Mutation(
        "testbed.engine.inbox:Inbox.hold", always(None), ("tests/simulation/test_checkpoints.py",)
    ),
    "a server that has come back numbers its rounds from 0 in a resumed run": Mutation(
        "testbed.engine.upstream:ParentServers.load_state",
        edit('state.get("begun", 0)', "0"),
        ("tests/engine/checkpoint/test_members.py",),
    ),
    "overlays forget their trees at a checkpoint": Mutation(
        "testbed.engine.overlay.group:OverlayNode._resume", edit("self._trees =", "_ ="), RESUMED
    ),
    "the last score before a checkpoint is forgotten": Mutation(
        "testbed.engine.evaluation:Evaluation.load_state", edit('if "round" in state:', "if False:"), RESUMED
    ),
    "compressed gossip mixes what it has, not what is known": Mutation(
        "testbed.engine.gossip.compressed:SentModel.encode",
        edit("await self.take(parts, round_)", "self.known = model"),
        COMPRESSED,
    ),
    "gathered payloads are decoded once": Mutation(
        "testbed.engine.collectives.sums:GatheredSum.__call__",
        edit("parcels, strict=True", "parcels[:1], strict=False"),
        ("tests/engine/gossip/test_compressed.py",),
    ),
    "4-bit blocks lose what their code lost": Mutation(
        "testbed.engine.dgt.sender:BlockSender._cut",
        edit("if state.residual is not None:", "if False:"),
        ("tests/engine/test_accounts.py",),
    ),
    "draws of step times start again after a checkpoint": Mutation(
        "testbed.plan.pace:Pacer.load_state",
        always(None),
        ("tests/engine/checkpoint/test_checkpoint.py::test_step_times_continue",),
    ),
    "all workers of a hierarchical sum draw the same positions": Mutation(
        "testbed.engine.collectives.sums:_memories",
        edit("RandomK(seed, sender)", "RandomK(seed)"),
        ("tests/engine/collectives/test_topk.py",),
    ),
    "who comes back to all-reduce evaluates again": Mutation(
        "testbed.engine.peers:Peers.by_seniority",
        instead(property(lambda self: list(self.names))),
        ("tests/faults/test_continue.py::test_when_the_one_that_evaluates_is_lost_the_next_one_does",),
    ),
    "relayed sums forget that no worker has a gradient": Mutation(
        "testbed.engine.overlay.root:Root._contribute",
        edit('for name in ("no_gradient",) if name in notes', "for name in ()"),
        ("tests/engine/script/test_script.py::test_frozen_parameters_stay_as_they_are_wherever_the_optimizer_runs",),
    ),
}
