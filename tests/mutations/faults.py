"""Connections, credentials, members that fail, leave and join, checkpoints and restarts."""

from __future__ import annotations

import contextlib
import hmac
import ssl
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec

from testbed.engine.membership import Membership
from testbed.realtime.auth import HandshakeResult, Hello
from testbed.realtime.frames import HEARTBEAT
from tests.mutations.mutation import Mutation, always, edit, instead


def _believing(before: Any) -> Any:
    """``hmac``, to which every code is right."""
    return SimpleNamespace(new=hmac.new, digest=hmac.digest, compare_digest=lambda one, other: True)


def _any_sequence(before: Any) -> Any:
    def check(self: Any, start: int) -> Any:
        self._sequence = int.from_bytes(self._memory[start + 4 : start + 12], "big")
        return before(self, start)

    return check


def _any_size(before: Any) -> Any:
    return lambda self, mac, max_body_bytes: before(self, mac, 1 << 62)


def _asking_nobody(before: Any) -> Any:
    def context(*args: Any) -> Any:
        made = before(*args)
        made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
        return made

    return context


async def _as_it_is(sock: Any, *args: Any, **kwargs: Any) -> Any:
    return sock


@contextlib.contextmanager
def _in_place(path: Path) -> Iterator[Path]:
    """Write where it is going to be read."""
    yield path


def _unverified(before: Any) -> Any:
    return lambda path, digest: path.read_bytes()


def _as_they_came(before: Any) -> Any:
    """Contributions in the order of arrival, not of rank."""
    return lambda self, members, key, round_, now_s: sorted(
        before(self, members, key, round_, now_s), key=lambda each: each.arrived_s
    )


def _value_alone(before: Any) -> Any:
    """An optimizer's state without its moments."""
    return lambda self: {"value": self.value}


async def _not_told(*args: Any) -> None:
    return None


def _kept(before: Any) -> Any:
    return lambda self, step, number, gradients: gradients


def _trusting(before: Any) -> Any:
    return lambda data: msgspec.msgpack.decode(data, type=Hello)


def _without_repeating(before: Any) -> Any:
    return lambda self, successor, again, introduced: before(self, successor, [], introduced)


REALTIME, FAULTS = "tests/realtime/test", "tests/faults/test"
MEMBERS = "tests/engine/checkpoint/test_members.py"
MUTATIONS: dict[str, Mutation] = {
    "a stalled connection notices what changes on a dead link": Mutation(
        "testbed.simulation.tcp:TcpConnection.path_changed",
        edit("if not path.up and self._pipe.capacity > 0:", "if False:"),
        ("tests/simulation/test_tcp.py::test_what_changes_while_the_path_is_down_is_not_noticed",),
    ),
    "what a script's process forks leaves the node once more": Mutation(
        "testbed.realtime.child:_set_forks_apart",
        edit("if not left:", "if True:"),
        ("tests/realtime/test_fleet.py::test_processes_of_a_scripts_processes_keep_their_files_and_handlers",),
    ),
    "a node goes on without a log": Mutation(
        "testbed.realtime.node:_report",
        edit("world.fail(error)", "pass"),
        (f"{REALTIME}_network.py::test_a_node_whose_log_cannot_be_written_fails_at_once_and_says_why",),
    ),
    "the first pause that ends lets a process go on": Mutation(
        "testbed.plan.effects:NodeEffects._action",
        edit('"" if stopped else "continue"', '"continue"'),
        ("tests/plan/test_effects.py::test_what_is_done_to_a_node",),
    ),
    "a pause stops a node that has no process": Mutation(
        "testbed.plan.effects:NodeEffects._is_away",
        always(False),
        ("tests/plan/test_effects.py::test_what_is_done_to_a_node",),
    ),
    "the last of several losses counts": Mutation(
        "testbed.plan.effects:worst_loss",
        instead(lambda own, active: active[-1] if active else own),
        ("tests/plan/test_effects.py::test_when_one_ends_the_others_count",),
    ),
    "a node dies of a pause of its predecessor": Mutation(
        "testbed.simulation.faults:SimulatedFaults._lose_process",
        edit("if self._processes[node] == process:", "if True:"),
        (f"{FAULTS}_overlaps.py::test_who_was_killed_in_the_pause_does_not_die_of_it_later",),
    ),
    "a model for its predecessor is no message that a worker expects": Mutation(
        "testbed.engine.inbox:Inbox.drop",
        edit("self._handlers[kind] = _drop", "pass"),
        ("tests/engine/test_inbox.py",),
    ),
    "who registers takes the answer to its predecessor": Mutation(
        "testbed.engine.membership:Membership._on_ready",
        edit("if registered_s not in (None, self._registration.sent_at_s):", "if False:"),
        ("tests/engine/test_membership.py",),
    ),
    "faults hit nodes that have yet to start again": Mutation(
        "testbed.execution.recovery:Attempts._next_beginning_s",
        edit("while missed := list(self.clock.take(begin_s)):", "while missed := []:"),
        (f"{FAULTS}_overlaps.py::test_a_node_that_two_faults_have_killed_returns_with_the_later_end",),
    ),
    "servers wait for rounds that a joined member leaves out": Mutation(
        "testbed.policy.sync.fsa:Fsa.on_member_began",
        edit("return self._without(member, round_)", "return []"),
        (f"{FAULTS}_continue.py::test_several_servers_let_a_worker_begin_with_the_same_round",),
    ),
    "SSP counts rounds that a joined member leaves out": Mutation(
        "testbed.policy.sync.ssp:Ssp.on_member_began",
        edit("pushes[member] = round_", "pass"),
        (f"{FAULTS}_continue.py::test_several_servers_let_a_worker_begin_with_the_same_round",),
    ),
    "each of several servers lets a worker join in its own round": Mutation(
        "testbed.engine.kvworker:KVWorker.begin",
        edit("BEGIN, round=round_", "BEGIN, round=self._offers[server]"),
        (f"{FAULTS}_continue.py::test_several_servers_let_a_worker_begin_with_the_same_round",),
    ),
    "blocks of a lost server wait for the rest": Mutation(
        "testbed.engine.dgt.receiver:BlockReceiver.forget",
        always(None),
        (f"{FAULTS}_continue.py::test_blocks_of_a_lost_server_end_with_it",),
    ),
    "a worker that overlaps begins with round 0 when it joins": Mutation(
        "testbed.engine.pipeline:PipelinedWorker._train",
        edit("max(self._checkpointer.first_round, first_control.begin)", "self._checkpointer.first_round"),
        (f"{FAULTS}_continue.py::test_who_comes_back_takes_part_again",),
    ),
    "who is not answered as a relay is lost waits for ever": Mutation(
        "testbed.engine.overlay.root:Root._is_current",
        edit("if direct and spread.round", "if False and spread.round"),
        (
            f"{FAULTS}_continue.py::test_the_others_finish",
            f"{FAULTS}_continue.py::test_transfers_of_a_schedule_end_with_a_lost_node",
        ),
    ),
    "what a lost relay has taken along is not sent once more": Mutation(
        "testbed.engine.overlay.member:OverlayMember._on_resend",
        edit("if self._is_direct(chunk):", "if False:"),
        (f"{FAULTS}_continue.py::test_the_others_finish",),
    ),
    "a contribution counts again when it is sent once more": Mutation(
        "testbed.engine.overlay.root:Root._contribute",
        edit("not delivered.isdisjoint(entry.members) or", ""),
        (f"{FAULTS}_search.py::test_nor_where_one_once_was",),
    ),
    "transfers of a lost node keep its ports": Mutation(
        "testbed.policy.overlay.tsengine:TsEngine.reset",
        always(None),
        (f"{FAULTS}_continue.py::test_transfers_of_a_schedule_end_with_a_lost_node",),
    ),
    "nodes send to a relay that has not sent to them": Mutation(
        "testbed.engine.overlay.member:OverlayMember._hand_to",
        edit("while self._joined", "while False and self._joined"),
        (f"{FAULTS}_continue.py::test_what_is_sent_to_a_relay_that_is_back_waits_for_its_first_message",),
    ),
    "replies that a loss releases do not wait for their updates": Mutation(
        "testbed.engine.server:Server._begin", edit("(each, self._running_effects)", "(each)"), (f"{FAULTS}_join.py",)
    ),
    "keys that become complete by a loss go up one after the other": Mutation(
        "testbed.engine.server:Server._begin",
        edit("0 if self._upstream.is_top else effect.key", "0"),
        (f"{FAULTS}_search.py::test_nor_where_one_once_was",),
    ),
    "pulls wait for rounds that never end": Mutation(
        "testbed.engine.server:Server._free_stuck_pulls",
        always(None),
        (f"{FAULTS}_search.py::test_nor_where_one_once_was",),
    ),
    "a late word of a loss removes the process that is back": Mutation(
        "testbed.engine.server:Server.on_members_lost",
        edit("if self._joined_in_epoch.get(node, 0) <= epoch", ""),
        (f"{FAULTS}_continue.py::test_a_worker_is_back_before_its_server_has_heard_of_its_loss",),
    ),
    "a sum that is begun anew takes messages of the one before": Mutation(
        "testbed.engine.collectives.operation:CollectiveMail._on_message",
        edit('meta.get("epoch", 0)', "self.epoch"),
        (
            f"{FAULTS}_survivors.py::test_every_gradient_counts_once_or_not_at_all",
            f"{FAULTS}_survivors.py::test_whoever_is_killed_whenever",
        ),
    ),
    "a worker that has not completed a round repeats it alone": Mutation(
        "testbed.engine.collectives.worker:AllReduceWorker._take_from",
        always(""),
        (f"{FAULTS}_survivors.py::test_a_worker_that_starts_again_takes_part_again",),
    ),
    "the weights of lost neighbours are lost as well": Mutation(
        "testbed.policy.gossip.mixing:Part.without",
        edit("Part(1.0 - sum(weight for _, weight in receives), ", "Part(self.keep, "),
        ("tests/engine/test_peers.py::test_weights_add_up_without_any_two_of_six",),
    ),
    "frames carry no code": Mutation(
        "testbed.realtime.frames:hmac", _believing, (f"{REALTIME}_frames.py::test_every_altered_byte_is_noticed",)
    ),
    "every frame has the same nonce": Mutation(
        "testbed.realtime.frame_codes:_nonce",
        edit("number.to_bytes(", "(0).to_bytes("),
        (f"{REALTIME}_frame_codes.py::test_gmac_is_the_tag_of_gcm_over_data_that_is_not_encrypted",),
    ),
    "a large frame's first pieces are not covered": Mutation(
        "testbed.realtime.frame_codes:_Gmac.update",
        edit("in self._pieces:", "in ():"),
        (f"{REALTIME}_frames.py::test_frames_arrive_whole_in_whatever_portions",),
    ),
    "freed memory goes back to the system at once": Mutation(
        "testbed.environment:_own_tunables",
        always(""),
        ("tests/units/test_environment.py::test_freed_memory_is_used_again_without_page_faults",),
    ),
    "frames come in any order": Mutation(
        "testbed.realtime.frames:FrameReader._check_prefix",
        _any_sequence,
        (f"{REALTIME}_frames.py::test_replayed_reordered_and_dropped_frames_are_refused",),
    ),
    "frames after the first of a portion are dropped": Mutation(
        "testbed.realtime.frames:FrameReader.received",
        edit("while (frame", "if (frame"),
        (f"{REALTIME}_frames.py::test_many_small_frames_are_read_at_once_and_the_good_ones_before_a_bad_one_count",),
    ),
    "tensors of small frames are views of the reader's buffer": Mutation(
        "testbed.messages:decode_message",
        edit("bytearray(body[start : start + size])", "body[start : start + size]"),
        (f"{REALTIME}_frames.py::test_tensors_of_a_small_frame_keep_their_numbers_when_the_buffer_is_used_again",),
    ),
    "a full ring is written over": Mutation(
        "testbed.realtime.shared_memory:_Ring.write",
        edit("RING_BYTES - self.filled", "RING_BYTES"),
        (f"{REALTIME}_shared_memory.py::test_a_full_ring_takes_no_more_until_it_is_read",),
    ),
    "a writer believes that its reader never sleeps": Mutation(
        "testbed.realtime.shared_memory:_Ring.write",
        edit("self.counters[_READ] == start", "False"),
        (f"{REALTIME}_shared_memory.py::test_the_bell_rings_only_where_the_reader_may_sleep",),
    ),
    "memory comes back while a tensor is still on it": Mutation(
        "testbed.buffers:BufferPool._lend",
        edit("return torch", "give_back(self._lent[number])\n    return torch"),
        ("tests/units/test_buffers.py::test_memory_comes_back_with_the_last_tensor_that_shares_it",),
    ),
    "unused memory grows without bound": Mutation(
        "testbed.buffers:BufferPool._sort",
        edit("> self._kept_bytes", "< 0"),
        ("tests/units/test_buffers.py::test_unused_memory_is_bounded_and_given_back_after_a_while",),
    ),
    "anybody's offer of memory is taken": Mutation(
        "testbed.realtime.shared_memory:hmac",
        _believing,
        (f"{REALTIME}_shared_memory.py::test_an_offer_of_another_key_is_refused",),
    ),
    "frames on sockets have no code": Mutation(
        "testbed.realtime.connection:Connection.start",
        edit("self._stream.private", "True"),
        (f"{REALTIME}_shared_memory.py::test_only_frames_that_others_can_reach_have_a_code",),
    ),
    "authentication codes are computed in shared memory": Mutation(
        "testbed.realtime.connection:Connection.start",
        edit("self._stream.private", "False"),
        (f"{REALTIME}_shared_memory.py::test_only_frames_that_others_can_reach_have_a_code",),
    ),
    "a connection takes all that is queued at once": Mutation(
        "testbed.realtime.connection:Connection._fill",
        edit(" and size < self._batch_bytes", ""),
        (f"{REALTIME}_connection.py::test_what_is_urgent_waits_for_one_batch",),
    ),
    "a batch is as long as ever": Mutation(
        "testbed.messages:batch_bytes",
        always(65_536),
        (f"{REALTIME}_connection.py::test_a_batch_is_no_longer_than_what_the_kernel_may_hold",),
    ),
    "memory is shared across emulated links": Mutation(
        "testbed.realtime.shared_memory:shares_memory",
        edit("plan.site(site).is_unshaped", "True"),
        (f"{REALTIME}_shared_memory.py::test_only_nodes_of_one_data_center_without_an_emulated_link_share_memory",),
    ),
    "headers of any length": Mutation(
        "testbed.realtime.frames:MAX_HEADER_BYTES",
        instead(1 << 30),
        (f"{REALTIME}_frames.py::test_a_header_beyond_the_limit_is_refused",),
    ),
    "bodies of any length": Mutation(
        "testbed.realtime.frames:FrameReader.__init__",
        _any_size,
        (f"{REALTIME}_frames.py::test_a_body_beyond_the_limit_is_refused_before_memory_is_taken",),
    ),
    "tensors of any shape": Mutation(
        "testbed.messages:MAX_ELEMENTS",
        instead(float("inf")),
        (f"{REALTIME}_frames.py::test_a_shape_that_no_tensor_has_is_refused",),
    ),
    "every secret is right": Mutation(
        "testbed.realtime.auth:hmac",
        _believing,
        (f"{REALTIME}_auth.py::test_a_wrong_secret_or_run_is_named_at_both_ends",),
    ),
    "a hello is read with trust": Mutation(
        "testbed.realtime.auth:decode_hello", _trusting, (f"{REALTIME}_auth.py::test_garbage_ends_the_handshake",)
    ),
    "who shows no certificate is welcome": Mutation(
        "testbed.realtime.tls:_context",
        _asking_nobody,
        (f"{REALTIME}_tls.py::test_a_peer_without_a_certificate_is_refused",),
    ),
    "TLS is agreed on, and left out": Mutation(
        "testbed.realtime.connecting:start_tls",
        instead(_as_it_is),
        (f"{REALTIME}_tls.py::test_every_connection_of_a_node_is_covered",),
    ),
    "strangers take all places": Mutation(
        "testbed.realtime.connecting:Acceptor._has_place",
        always(True),
        (f"{REALTIME}_network.py::test_silent_strangers_hold_a_limited_number_of_places",),
    ),
    "a second node of one name": Mutation(
        "testbed.realtime.network:Network.authorize",
        always(HandshakeResult.ACCEPTED),
        (f"{REALTIME}_network.py::test_a_second_node_of_the_same_name_is_refused",),
    ),
    "the event loop sends heartbeats": Mutation(
        "testbed.realtime.connection:Connection.beat",
        instead(lambda self: self._loop.call_soon_threadsafe(lambda: (self.queue.post(HEARTBEAT), self.wake()))),
        (f"{REALTIME}_fleet.py::test_a_node_whose_event_loop_stands_still_lives",),
    ),
    "a run that has ended is lost to a silent peer": Mutation(
        "testbed.realtime.network:Network._on_silent",
        edit("if not self._role_has_ended:", "if True:"),
        (f"{REALTIME}_network.py::test_a_node_whose_part_has_ended_waits_for_silent_peers",),
    ),
    "nobody listens for heartbeats": Mutation(
        "testbed.realtime.heartbeat:Liveness.silent",
        always([]),
        (f"{REALTIME}_network.py::test_a_peer_that_gives_no_sign_of_life_is_noticed",),
    ),
    "files are written in place": Mutation(
        "testbed.results.atomic:replacing",
        instead(_in_place),
        ("tests/results/test_atomic.py::test_an_error_while_writing_keeps_the_old_content",),
    ),
    "checkpoints are not verified": Mutation(
        "testbed.engine.checkpoint:_verified",
        _unverified,
        ("tests/engine/checkpoint/test_checkpoint.py::test_a_damaged_checkpoint_is_skipped_with_the_reason",),
    ),
    "checkpoints lack the moments": Mutation(
        "testbed.training.optimizers.key:KeyOptimizer.state", _value_alone, (f"{FAULTS}_restart.py::test_whoever_dies",)
    ),
    "a full disk is never too much": Mutation(
        "testbed.engine.checkpoint:GIVE_UP_AFTER",
        instead(1 << 30),
        (f"{FAULTS}_restart.py::test_until_it_has_been_full_three_times",),
    ),
    "nothing is restarted": Mutation(
        "testbed.execution.recovery:Attempts._restarts", instead(0), (f"{FAULTS}_restart.py::test_whoever_dies",)
    ),
    "restarts without end": Mutation(
        "testbed.execution.recovery:Attempts._restarts",
        instead(99),
        (f"{FAULTS}_restart.py::test_no_more_often_than_allowed",),
    ),
    "NaN is finite": Mutation(
        "testbed.engine.guard:_finite",
        always(True),
        (f"{FAULTS}_restart.py::test_a_gradient_that_is_not_finite_ends_the_run",),
    ),
    "a NaN that is left out stays": Mutation("testbed.engine.guard:Guarded._left_out", _kept, (f"{FAULTS}_nan.py",)),
    "sums in order of arrival": Mutation(
        "testbed.engine.aggregation:Contributions.take", _as_they_came, (f"{FAULTS}_links.py",)
    ),
    "the others do not stand for the missing": Mutation(
        "testbed.engine.membership_view:MembershipView.rescaling",
        always(1.0),
        (f"{FAULTS}_join.py::test_before_that_it_counts_as_missing",),
    ),
    "nobody is told who is gone": Mutation(
        "testbed.engine.scheduler:MembershipLedger._tell",
        instead(_not_told),
        (f"{FAULTS}_continue.py::test_the_others_finish",),
    ),
    "rounds wait for the dead": Mutation(
        "testbed.policy.sync.fsa:Fsa.on_member_lost",
        always([]),
        (f"{FAULTS}_continue.py::test_the_others_finish",),
    ),
    "who comes back begins at once": Mutation(
        "testbed.engine.membership_view:MembershipView.may_pull",
        always(True),
        (f"{FAULTS}_presence.py::test_who_comes_back_in_a_round_waits_for_its_end",),
    ),
    "who joins was always there": Mutation(
        "testbed.plan.fault_clock:late_comers",
        always(()),
        (f"{FAULTS}_join.py::test_who_joins_takes_part_from_then_on",),
    ),
    "a run goes on with those who were lost": Mutation(
        "testbed.engine.checkpoint:Members.missing",
        instead(()),
        (f"{MEMBERS}::test_who_was_lost_stays_lost",),
    ),
    "who joins begins before a checkpoint is made": Mutation(
        "testbed.engine.worker:Worker.run",
        edit("if joining and self._checkpointer.due", "if False and self._checkpointer.due"),
        (f"{MEMBERS}::test_a_run_goes_on_with_those_who_took_part",),
    ),
    "nodes are let in while a checkpoint is made": Mutation(
        "testbed.engine.scheduler:Scheduler._handle",
        edit("if self._saving is not None", "if False"),
        (f"{MEMBERS}::test_a_run_goes_on_with_those_who_took_part",),
    ),
    "a checkpoint keeps what was written before a loss": Mutation(
        "testbed.engine.scheduler:Scheduler._end_checkpoint",
        edit("self._ledger.epoch != self._written_in", "False"),
        (f"{MEMBERS}::test_if_one_is_lost_while_all_write_they_write_once_more",),
    ),
    "pauses end with a checkpoint": Mutation(
        "testbed.simulation.faults:SimulatedFaults._pause_again",
        always(None),
        (f"{MEMBERS}::test_who_stands_still_does_so_in_the_resumed_run",),
    ),
    "who joins has the servers' sums for its model": Mutation(
        "testbed.engine.local_work:LocalOptimizerWork.load_state",
        always(None),
        (f"{FAULTS}_continue.py::test_who_comes_back_takes_part_again",),
    ),
    "a script that joins begins with its first step": Mutation(
        "testbed.engine.script.worker:ScriptWorker._begin_at",
        edit("self._next_step = sum(map(self._declared_steps, range(round_)))", "self._next_step = 0"),
        ("tests/kvstore/test_members.py::test_its_loop_begins_with_the_round_it_joins",),
    ),
    "a script that joins keeps its own model": Mutation(
        "testbed.engine.script.worker:ScriptWorker.take_over",
        instead(_not_told),
        ("tests/kvstore/test_members.py::test_a_script_that_starts_again_joins",),
    ),
    "who leaves takes what is not across along": Mutation(
        "testbed.engine.sync_setup:lan_rounds",
        always(1),
        (f"{FAULTS}_leave.py::test_with_hfa_it_goes_after_a_round_across",),
    ),
    "who leaves tells nobody": Mutation(
        "testbed.engine.membership:Membership.depart",
        lambda before: Membership.finish,
        (f"{FAULTS}_leave.py::test_the_server_goes_with_the_last_of_its_workers",),
    ),
    "who has left after a round comes back with its server": Mutation(
        "testbed.plan.effects:NodeEffects.left",
        always(None),
        (f"{FAULTS}_leave.py::test_who_has_left_does_not_come_back_with_its_server",),
    ),
    "who joins counts the step that another makes": Mutation(
        "testbed.engine.worker:Worker._agree_on_first_values",
        edit("self._work.begin_at(sum(map(self._declared_steps, range(before + 1))))", "pass"),
        (f"{FAULTS}_join.py::test_it_goes_on_with_the_samples_of_its_first_round",),
    ),
    "urgent pushes overtake the keys on their way to a replica": Mutation(
        "testbed.engine.kvworker:KVWorker._introduce",
        edit("priority=_BEFORE_ALL", "priority=0"),
        ("tests/kvstore/test_members.py::test_a_replica_is_told_the_keys_before_the_most_urgent_push",),
    ),
    "who starts again as the run ends is waited for": Mutation(
        "testbed.realtime.network:Network.authorize",
        edit("if self._is_monitor and self._role_has_ended and peer in self._left:", "if False:"),
        (f"{REALTIME}_network.py::test_a_node_that_starts_again_as_the_run_ends_is_turned_away",),
    ),
    "who registers as a real run ends waits": Mutation(
        "testbed.realtime.world:RealWorld._on_missed",
        edit("self.network.turn_away(message.sender)", "pass"),
        (f"{REALTIME}_network.py::test_a_node_that_registers_as_the_run_ends_is_turned_away",),
    ),
    "processes cannot be asked to leave": Mutation(
        "testbed.realtime.child:_handle_leave", always(None), (f"{FAULTS}_leave.py::test_a_process_leaves_at_a_time",)
    ),
    "who registers too late waits": Mutation(
        "testbed.simulation.run:Simulation._on_missed",
        always(None),
        (f"{FAULTS}_search.py::test_nor_where_one_once_was",),
    ),
    "a silent data centre is alive": Mutation(
        "testbed.simulation.faults:silences", always(()), (f"{FAULTS}_restart.py::test_silence_for_too_long_is_death",)
    ),
    "a stopped node is alive": Mutation(
        "testbed.simulation.faults:SimulatedFaults._lose",
        always(None),
        (f"{FAULTS}_restart.py::test_silence_for_too_long_is_death",),
    ),
    "a pause is made up for by the steps after it": Mutation(
        "testbed.realtime.world:RealWorld._step",
        edit("late_s if 0 < late_s < _MADE_UP_S else 0.0", "max(0.0, late_s)"),
        (f"{REALTIME}_world.py::test_a_pause_during_a_step_is_not_made_up_for_by_the_next_one",),
    ),
    "a stopped node keeps its core": Mutation(
        "testbed.realtime.node_processes:NodeProcesses.send_signal",
        edit("number == signal.SIGSTOP", "False"),
        (f"{REALTIME}_fleet.py::test_the_core_of_a_node_that_is_stopped_while_it_computes_becomes_free",),
    ),
    "who was stopped while it took several begins with a part of them": Mutation(
        "testbed.realtime.processor:Tokens.acquire",
        edit(" or (several and not self.holding[mine + 1])", ""),
        (f"{REALTIME}_processor.py",),
    ),
    "a node that starts again is refused until the end of its old process is known": Mutation(
        "testbed.realtime.network:Network.authorize",
        edit('self._lose(peer, "has started again")', "pass"),
        (
            f"{REALTIME}_network.py::test_a_node_that_starts_again_takes_the_place_of_a_process_whose_end_was_lost_on_the_way",
        ),
    ),
    "each connection of a node that starts again loses it": Mutation(
        "testbed.realtime.network:Network.authorize",
        edit("self._processes[peer] = hello.process", "self._processes.setdefault(peer, hello.process)"),
        (
            f"{REALTIME}_network.py::test_a_node_that_starts_again_takes_the_place_of_a_process_whose_end_was_lost_on_the_way",
        ),
    ),
    "a node that starts again and reaches no other ends the run": Mutation(
        "testbed.realtime.fleet:Fleet._start_again",
        edit("self._joining.update(missing)", "pass"),
        (f"{REALTIME}_fleet.py::test_a_node_that_starts_again_and_reaches_nobody_does_not_end_the_run",),
    ),
    "a drain waits for a peer that is lost": Mutation(
        "testbed.realtime.udp:Sender.lost",
        edit("self._drained()", "pass"),
        (f"{REALTIME}_udp.py::test_a_drain_ends_when_the_peer_is_lost",),
    ),
    "connections that come while the inbox is full are read": Mutation(
        "testbed.realtime.network:Network.on_accepted",
        edit("if self._paused and", "if False and"),
        (f"{REALTIME}_network.py::test_a_connection_that_is_accepted_while_the_inbox_is_full_is_not_read",),
    ),
    "the port of a node that is away is given to others": Mutation(
        "testbed.realtime.sockets:Endpoints.close",
        edit("_close(self._listeners)", "_close(self._listeners) or _close(self._reserved)"),
        (f"{REALTIME}_fleet.py::test_the_port_of_a_node_that_is_away_stays_its_own",),
    ),
    "wrong bits pass": Mutation(
        "emulation.shaping.path:PacketFates.next",
        edit("Fate.LOST if spoilt else ", ""),
        ("tests/emulation/test_pure.py::test_spoilt_packets_are_lost_beside_the_others",),
    ),
    "an answer for a predecessor": Mutation(
        "testbed.engine.membership_view:MembershipView.first_round",
        always(0),
        (f"{FAULTS}_search.py::test_nor_where_one_once_was",),
    ),
    "a replica answers before it has the step": Mutation(
        "testbed.engine.replica:ReplicatedRootStore._copy",
        instead(_not_told),
        (f"{FAULTS}_replica.py::test_at_any_moment",),
    ),
    "children forget what is not answered": Mutation(
        "testbed.engine.kvworker:KVWorker._introduce", _without_repeating, (f"{FAULTS}_replica.py::test_at_any_moment",)
    ),
    "the master worker may join with its server": Mutation(
        "testbed.plan.faults:_indispensable",
        edit("if name in late", "if name in targets"),
        ("tests/faults/test_plan.py",),
    ),
    "a trace stands still after a fault": Mutation(
        "testbed.plan.effects:overlaid",
        edit("own.period_s if changes else math.inf", "math.inf"),
        ("tests/faults/test_plan.py",),
    ),
    "deadlines do not know of faults": Mutation(
        "testbed.plan.build:build_plan",
        edit("derive(scenario, network, nodes, training, faults)", "derive(scenario, network, nodes, training)"),
        ("tests/plan/test_timeouts.py",),
    ),
    "a worker stays away that outlived its server's return": Mutation(
        "testbed.realtime.fleet:Fleet._start_again",
        edit("if child in self._processes", "if False"),
        ("tests/realtime/test_fleet.py::test_workers_that_end_after_their_server_has_returned_start_again",),
    ),
    "programs are killed with the host's group and their guards": Mutation(
        "testbed.execution.programs.supervisor:Supervisor._start",
        edit("process_group=0,", ""),
        ("tests/execution/programs/test_programs.py::test_programs_end_with_a_host_whose_group_is_killed",),
    ),
    "nodes wait for a launcher that is stopped": Mutation(
        "testbed.execution.host:_reporter",
        edit("os.set_blocking(channel, False)", "pass"),
        ("tests/execution/test_host.py",),
    ),
    "a slow start counts as standing still": Mutation(
        "testbed.realtime.fleet:Fleet._start",
        edit("self._status.advanced_at_s = time.monotonic()", "pass"),
        ("tests/realtime/test_fleet.py::test_nodes_that_another_machine_starts_slowly_have_time_to_advance",),
    ),
    "a closed pipe ends the run": Mutation(
        "testbed.display.progress:Logged.show",
        edit("self._inner = Display()", "raise"),
        ("tests/display/test_display.py",),
    ),
    "lost attempts pile up": Mutation(
        "testbed.execution.recovery:Attempts.run",
        edit("collect_garbage()", "pass"),
        ("tests/execution/test_recovery.py::test_what_a_lost_attempt_held_is_freed_before_the_next",),
    ),
    "steps are made again by the replica": Mutation(
        "testbed.engine.replica:ReplicaMail._on_push",
        lambda before: lambda self, message, handler: handler(message),
        (f"{FAULTS}_copies.py::test_a_step_that_was_told_is_answered_and_not_made_again",),
    ),
}
