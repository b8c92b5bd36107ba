"""The fault matrix: what may break, what is promised then, and the tests that show it.

``simulated``: in virtual time. ``real``: among processes, sockets, files or emulated links. ``alone``: parts by
themselves. Levels: F ends loudly, D goes on without, R recovers exactly, T costs nothing but time.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


@dataclass(frozen=True)
class Row:
    """A fault. Tests are ``path::function``, or a path where all of a file is meant."""

    fault: str
    promise: str
    simulated: tuple[str, ...] = ()
    real: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()

    @property
    def tests(self) -> tuple[str, ...]:
        return (*self.simulated, *self.real, *self.alone)


RESTART, CONTINUE, REAL, LINKS = "faults/test_restart", "faults/test_continue", "faults/test_real", "faults/test_links"
NETWORK, FRAMES, AUTH, FLEET = (
    "realtime/test_network",
    "realtime/test_frames",
    "realtime/test_auth",
    "realtime/test_fleet",
)
KEPT, EMULATED, RUNS = "engine/checkpoint/test_checkpoint", "emulation/test_links", "results/test_rundir"
WHOEVER = (f"{RESTART}::test_whoever_dies", f"{RESTART}::test_at_moments_that_the_seed_draws")
ABORTED = f"{RESTART}::test_by_default_a_death_ends_the_run_loudly"
DIES = f"{REAL}::test_a_death_ends_the_run_within_seconds_and_says_who"

ROWS: dict[int, Row] = {
    1: Row("worker crash", "abort F, continue D, restart R",
           (*WHOEVER, ABORTED, f"{CONTINUE}::test_the_others_finish", f"{RESTART}::test_under_every_technique",
            "faults/test_survivors::test_whoever_is_killed_whenever",
            "faults/test_survivors::test_every_gradient_counts_once_or_not_at_all"),
           ("faults/test_survivors::test_processes_go_on_without_one_that_is_killed_and_take_it_in_again",
            "faults/test_survivors::test_emulated_too", f"{REAL}::test_whoever_dies",
            f"{FLEET}::test_kill_minus_9_of_a_node_ends_the_run_and_names_it")),
    2: Row("local server crash", "abort F, continue D, restart R",
           (*WHOEVER, f"{RESTART}::test_from_the_beginning_where_there_are_no_checkpoints",
            f"{CONTINUE}::test_who_comes_back_takes_part_again"),
           (DIES, f"{REAL}::test_a_data_centre_dies_and_comes_back", f"{REAL}::test_whoever_dies")),
    3: Row("global server crash", "abort F, restart R; never a mix of versions",
           (*WHOEVER, f"{RESTART}::test_versions_go_back_only_at_a_restart", f"{RESTART}::test_under_every_technique"),
           (f"{REAL}::test_a_restart_ends_with_the_bits_of_a_run_without_faults", f"{REAL}::test_whoever_dies")),
    4: Row("scheduler crash", "abort F, restart R", WHOEVER, (f"{REAL}::test_whoever_dies",)),
    5: Row("link down and up", "T below dead_after, then as a crash; no node trains alone",
           (f"{LINKS}::test_an_outage_costs_its_time_and_the_finding_out", f"{LINKS}::test_mixedsync_goes_on_meanwhile",
            f"{LINKS}::test_links_stop_one_by_one_and_come_back_in_any_order",
            f"{RESTART}::test_silence_for_too_long_is_death", f"{RESTART}::test_the_network_goes_on_where_it_was"),
           (f"{EMULATED}::test_a_link_goes_down_and_comes_back",
            f"{NETWORK}::test_a_peer_that_gives_no_sign_of_life_is_noticed")),
    6: Row("slow or stopped node", "T below dead_after, then as a crash",
           (f"{RESTART}::test_a_pause_costs_time_and_nothing_else", f"{RESTART}::test_silence_for_too_long_is_death"),
           (f"{REAL}::test_a_stopped_process", f"{FLEET}::test_a_stopped_node_is_found_dead",
            f"{NETWORK}::test_long_computation_does_not_hold_up_messages")),
    7: Row("almost no bandwidth", "T while anything moves, F when nothing does",
           (f"{LINKS}::test_slow_is_not_dead", f"{LINKS}::test_nothing_at_all_is"),
           (f"{EMULATED}::test_live_changes_keep_the_queue",)),
    8: Row("loss burst", "T over TCP; DGT counts what it lost",
           (f"{RESTART}::test_spoilt_packets_cost_time_and_nothing_else",
            "engine/dgt/test_training::test_training_completes_on_lossy_links",
            "engine/dgt/test_rounds::test_whatever_happens_to_blocks_each_counts_once_and_in_its_place"),
           (f"{EMULATED}::test_losses_come_in_bursts", f"{EMULATED}::test_loss_is_as_planned_and_accounted_for")),
    9: Row("corrupted, repeated or reordered message", "packets T; a frame that is not authentic F, and R by restart",
           (f"{RESTART}::test_spoilt_packets_cost_time_and_nothing_else",),
           (f"{EMULATED}::test_faults_of_packets_begin_and_end_on_time",
            f"{NETWORK}::test_a_damaged_frame_closes_the_connection_and_ends_the_run"),
           (f"{FRAMES}::test_every_altered_byte_is_noticed", f"{FRAMES}::test_a_cut_frame_is_no_frame",
            f"{FRAMES}::test_replayed_reordered_and_dropped_frames_are_refused",
            "fuzz/test_fuzz::test_is_read_or_refused")),
    10: Row("malicious peer on a port", "T",
            real=(f"{NETWORK}::test_hostile_connections_do_not_disturb_a_session",
                  "faults/test_hostile::test_training_goes_on_among_strangers",
                  f"{AUTH}::test_a_silent_caller_times_out_and_a_flood_is_not_read"),
            alone=(f"{FRAMES}::test_a_body_beyond_the_limit_is_refused_before_memory_is_taken",
                   f"{FRAMES}::test_a_header_beyond_the_limit_is_refused",
                   f"{FRAMES}::test_garbage_is_refused_at_its_first_24_bytes")),
    11: Row("wrong secret or run", "F for that node within 2 s, others T",
            real=(f"{NETWORK}::test_a_node_with_the_wrong_secret_fails_within_two_seconds_and_says_so",
                  f"{AUTH}::test_a_wrong_secret_or_run_is_named_at_both_ends")),
    12: Row("disk full", "T, the checkpoint before stays; F after three in a row",
            (f"{RESTART}::test_a_full_disk_costs_checkpoints_only",
             f"{RESTART}::test_until_it_has_been_full_three_times"),
            (f"{KEPT}::test_a_full_disk_costs_the_checkpoint_and_not_the_run",
             f"{KEPT}::test_a_damaged_checkpoint_is_skipped_with_the_reason")),
    13: Row("kill -9 of the launcher", "nothing is left, and only what is dead is cleaned",
            real=(f"{FLEET}::test_kill_minus_9_of_the_parent_leaves_no_children",
                  "end_to_end/test_kill::test_nothing_is_left_of_an_emulated_run",
                  "emulation/test_sandbox::test_kill_9_of_the_launcher_leaves_nothing",
                  "emulation/test_journal::test_only_dead_runs_are_cleaned",
                  "results/test_atomic::test_a_killed_writer_leaves_the_old_or_the_new_content_whole")),
    14: Row("SIGINT, SIGTERM", "results so far, and nothing left",
            real=("cli/test_interrupts::test_one_signal_ends_the_run_with_its_results",
                  "cli/test_interrupts::test_impatience_costs_nothing_but_what_can_be_made_later",
                  f"{FLEET}::test_a_second_ctrl_c_does_not_wait_for_nodes_that_ignore_the_first")),
    15: Row("run again after a crash", "done, resumed, or refused by name",
            real=("cli/test_command::test_the_same_again_is_already_done",
                  f"{RUNS}::test_a_live_run_is_refused_with_its_process",
                  f"{RUNS}::test_a_crashed_run_is_seen_replaced_and_buried",
                  f"{KEPT}::test_killed_and_resumed_is_undisturbed")),
    16: Row("bad scenario", "F before anything is made",
            alone=("scenario/test_bad::test_says_where_and_what", "scenario/test_fuzz::test_mutated_files",
                   "scenario/test_fuzz::test_any_tree", "fuzz/test_fuzz::test_is_read_or_refused")),
    17: Row("NaN gradient", "F by name, or left out and never remembered",
            (f"{RESTART}::test_a_gradient_that_is_not_finite_ends_the_run",
             "faults/test_nan::test_no_algorithm_and_no_codec_meets_it")),
    18: Row("out of memory", "F by name",
            real=("faults/test_memory::test_an_allocation_that_fails_names_node_and_size",
                  "faults/test_memory::test_who_killed_is_said_as_far_as_it_is_known")),
    19: Row("port taken", "F by name",
            real=("realtime/test_sockets::test_an_address_that_is_taken_is_named",
                  "realtime/test_udp::test_a_port_that_is_taken_is_named")),
    20: Row("clock jump", "T: no decision reads such a clock",
            alone=("architecture/test_clocks::test_no_decision_reads_the_date",)),
    21: Row("half-open connection", "T for all others",
            real=(f"{NETWORK}::test_silent_strangers_hold_a_limited_number_of_places",
                  f"{NETWORK}::test_a_peer_that_gives_no_sign_of_life_is_noticed")),
    22: Row("version skew", "F by name",
            real=(f"{AUTH}::test_another_protocol_is_named_at_both_ends",)),
    23: Row("dataset missing or corrupt", "F by name before the start; a cache entry is fetched again",
            (), ("engine/test_loading::test_damaged_and_foreign_files_are_fetched_again",),
            ("training/test_datasets::test_every_missing_file_is_named", "training/test_datasets::test_malformed_idx",
             "training/test_datasets::test_a_torn_gzip")),
    24: Row("a node registers twice", "the second is refused",
            real=(f"{NETWORK}::test_a_second_node_of_the_same_name_is_refused",)),
    25: Row("faults of one target that overlap", "as if written otherwise, whatever their order",
            ("faults/test_overlaps::test_losses_inside_and_across_the_ends_of_an_outage",
             "faults/test_overlaps::test_any_other_fault_across_an_outage",
             "faults/test_overlaps::test_short_pauses_that_overlap_are_a_long_one",
             "faults/test_overlaps::test_a_node_that_two_faults_have_killed_returns_with_the_later_end",
             "faults/test_overlaps::test_the_same_faults_written_otherwise"),
            (), ("plan/test_effects::test_the_order_of_faults_does_not_matter",
                 "plan/test_effects::test_a_further_fault_never_makes_a_link_better",
                 "plan/test_effects::test_what_is_done_to_a_node")),
    26: Row("overloaded machine", "T: a node whose event loop is held up lives; overload is reported as such",
            real=(f"{FLEET}::test_a_node_whose_event_loop_stands_still_lives",
                  f"{NETWORK}::test_a_node_whose_part_has_ended_waits_for_silent_peers"),
            alone=("realtime/test_overload::test_a_busy_machine_is_told_with_a_cure",
                   f"{AUTH}::test_the_limit_grows_with_the_load_of_the_machine")),
}  # fmt: skip


def test_every_row_is_here() -> None:
    assert list(ROWS) == list(range(1, 27))
    both = {row for row, entry in ROWS.items() if entry.simulated and (entry.real or entry.alone)}
    assert both >= {1, 2, 3, 4, 5, 6, 7, 8, 9, 12}, "what happens to a run is shown in virtual time and for real"


@pytest.mark.parametrize("number", ROWS)
def test_the_tests_of_a_row_are_there(number: int) -> None:
    row = ROWS[number]
    assert row.tests and row.promise
    for name in row.tests:
        path, function = name.split("::")
        tree = ast.parse((TESTS / f"{path}.py").read_text())
        defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert function in defined, name
