"""Which tests show GeoMX' observable behaviours: rows of that list by number, for what synchronisation is about.

``virtual`` and ``sockets``: tests that run in virtual time, and over real sockets. ``alone``: decisions and arithmetic
that no world has a part in.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SYNC, SCRIPT, WORLDS = "engine/sync/test_both_worlds", "engine/script/test_script", "end_to_end/test_three_worlds"
GOLDEN, EQUAL, FLEET = "engine/sync/test_golden", "engine/sync/test_equivalences", "realtime/test_fleet"
KEPT, SPLITS, OPTIMIZERS = "engine/checkpoint", "training/test_splits", "training/test_optimizers"
POLICY, PLAN, SHARDS = "policy/test_sync", "plan/test_build", "policy/shard/test_shards"

_JOINED = f"{SYNC}::test_a_store_is_there_when_everybody_has_joined"
_SUMS = f"{GOLDEN}::test_fsa_sums_and_does_not_average"
_PULL = f"{SYNC}::test_a_pull_waits_for_the_masters_value"
_SLOW = f"{SYNC}::test_a_slow_data_centre_delays_fsa_and_not_the_others_of_mixedsync"
_BYTES = f"{WORLDS}::test_wan_payload_is_one_model_up_and_one_down_per_party_and_round"
_NO_OPTIMIZER = f"{SCRIPT}::test_without_an_optimizer_a_pull_is_the_sum_of_what_was_pushed"
_MASTER = f"{GOLDEN}::test_a_master_that_does_not_train_contributes_nothing"
_MOVED = f"{SCRIPT}::test_where_nobody_waits_for_all_the_optimizer_moves_to_the_servers"
_REPLAY = f"{GOLDEN}::test_dcasgd_compensates_from_what_each_member_last_pulled"
_HFA = f"{SYNC}::test_every_key_of_hfa_crosses_in_the_same_rounds"
_WEIGHTS = f"{GOLDEN}::test_weights_of_a_mean"
_ESYNC = f"{SYNC}::test_esync_balances_steps_and_ends_every_round_with_one_model"
_SERVERS = f"{SYNC}::test_any_number_of_global_servers_gives_the_same_bits"

ROWS: dict[int, dict[str, tuple[str, ...]]] = {
    4: {"virtual": (_JOINED,), "sockets": (_JOINED,)},
    5: {"alone": (f"{PLAN}::test_ranks_count_within_a_role_and_children_stand_in_rank_order",),
        "virtual": (_NO_OPTIMIZER,), "sockets": (_NO_OPTIMIZER,)},
    6: {"alone": (f"{PLAN}::test_addresses_only_where_they_mean_something",),
        "sockets": (f"{FLEET}::test_enter_is_called_first_in_the_child_and_addresses_are_the_plans",)},
    7: {"virtual": (_SUMS, _PULL), "sockets": (_SUMS, _PULL)},
    8: {"virtual": (_PULL,), "sockets": (_PULL,)},
    9: {"virtual": (_SUMS,), "sockets": (_SUMS,)},
    10: {"virtual": (f"{WORLDS}::test_equals_training_in_a_single_process_up_to_rounding",),
         "sockets": (f"{WORLDS}::test_every_node_ends_with_the_same_bits_in_every_world",)},
    11: {"virtual": (_SLOW,), "sockets": (_SLOW,)},
    12: {"virtual": (f"{EQUAL}::test_wan_bytes_of_fsa_do_not_depend_on_the_number_of_workers", _BYTES),
         "sockets": (_BYTES,)},
    13: {"virtual": (_NO_OPTIMIZER,), "sockets": (_NO_OPTIMIZER,)},
    14: {"virtual": (f"{GOLDEN}::test_local_servers_hold_no_optimizer",),
         "sockets": (f"{GOLDEN}::test_local_servers_hold_no_optimizer",)},
    15: {"virtual": (_MASTER,), "sockets": (_MASTER,)},
    16: {"virtual": (_MASTER,), "sockets": (_MASTER,)},
    17: {"virtual": (_SUMS, _MASTER), "sockets": (_SUMS, _MASTER)},
    18: {"virtual": (_SLOW,), "sockets": (_SLOW,)},
    19: {"virtual": (f"{SYNC}::test_one_step_for_each_push_of_a_data_centre",
                     f"{GOLDEN}::test_no_gradient_is_lost_or_counted_twice"),
         "sockets": (f"{SYNC}::test_one_step_for_each_push_of_a_data_centre",)},
    20: {"virtual": (_SLOW,), "sockets": (_SLOW,)},
    21: {"alone": ("scenario/test_sync_rules::test_mixedsync_alone_stands_on_the_wan_above_fsa",),
         "virtual": (_MOVED,), "sockets": (_MOVED,)},
    22: {"alone": (f"{OPTIMIZERS}::test_dcasgd_golden_step", f"{OPTIMIZERS}::test_dcasgd_momentum_works"),
         "virtual": (f"{EQUAL}::test_dcasgd_without_compensation_is_sgd", _REPLAY), "sockets": (_REPLAY,)},
    23: {"virtual": (_REPLAY, f"{SYNC}::test_dcasgd_without_staleness_is_sgd_to_the_bit"),
         "sockets": (_REPLAY, f"{SYNC}::test_dcasgd_without_staleness_is_sgd_to_the_bit")},
    24: {"virtual": (f"{SYNC}::test_hfa_with_single_steps_is_parameter_averaging",),
         "sockets": (f"{SYNC}::test_hfa_with_single_steps_is_parameter_averaging",)},
    25: {"virtual": (f"{GOLDEN}::test_hfa_golden", f"{GOLDEN}::test_hfa_of_the_original_example"),
         "sockets": (f"{GOLDEN}::test_hfa_golden",)},
    26: {"virtual": (_HFA,), "sockets": (_HFA,)},
    27: {"alone": (f"{POLICY}::test_hfa_goes_up_every_k2th_round_for_every_key",), "virtual": (_HFA,),
         "sockets": (_HFA,)},
    28: {"virtual": (_HFA,), "sockets": (_HFA,)},
    29: {"virtual": (_WEIGHTS, f"{GOLDEN}::test_weights_by_samples"), "sockets": (_WEIGHTS,)},
    30: {"alone": (f"{POLICY}::test_esync_golden_three_steps_against_one",), "virtual": (_ESYNC,),
         "sockets": (_ESYNC,)},
    31: {"virtual": (_WEIGHTS,), "sockets": (_WEIGHTS,)},
    32: {"virtual": (_ESYNC,), "sockets": (_ESYNC,)},
    62: {"virtual": ("engine/p3/test_p3::test_urgent_slices_overtake_on_the_wan_both_ways",),
         "sockets": ("engine/p3/test_emulated::test_urgent_slices_overtake_on_a_real_wan_link",)},
    63: {"virtual": (_SERVERS,), "sockets": (_SERVERS,)},
    64: {"alone": (f"{SHARDS}::test_even_cuts_where_the_parameter_server_does",),
         "virtual": (_SERVERS,), "sockets": (_SERVERS,)},
    65: {"sockets": (f"{SYNC}::test_two_global_servers_on_one_host_start_a_hundred_times",)},
    67: {"virtual": ("simulation/test_run::test_the_first_failure_stops_the_others_and_tasks_with_them",
                     f"{KEPT}/test_checkpoint::test_killed_and_resumed_is_undisturbed"),
         "sockets": (f"{FLEET}::test_kill_minus_9_of_a_node_ends_the_run_and_names_it",
                     f"{KEPT}/test_real::test_kill_and_resume")},
    68: {"virtual": (f"{KEPT}/test_checkpoint::test_killed_and_resumed_is_undisturbed",),
         "sockets": (f"{KEPT}/test_real::test_kill_and_resume",)},
    69: {"alone": ("display/test_display::test_every_evaluation_is_a_line_like_the_originals",)},
    70: {"alone": (f"{SPLITS}::test_contiguous_is_the_rule_of_geomx",
                   f"{SPLITS}::test_slices_that_do_not_exist_are_refused",
                   f"{SPLITS}::test_by_class_sorts_and_keeps_the_order_within_a_class")},
}  # fmt: skip
ONE_WORLD = {6: "virtual time has no interfaces", 65: "nor processes that start", 69: "a line", 70: "indices"}


def test_every_row_is_here() -> None:
    assert set(ROWS) == {*range(4, 33), *range(62, 66), *range(67, 71)}
    for row, shown in ROWS.items():
        assert {"virtual", "sockets"} <= set(shown) or row in ONE_WORLD, row


@pytest.mark.parametrize("row", ROWS)
def test_the_tests_of_a_row_are_there(row: int) -> None:
    """By name; and a test that is said to run in both worlds has something that chooses one of them."""
    for world, names in ROWS[row].items():
        for name in names:
            path, function = name.split("::")
            definitions = {
                node.name: node
                for node in ast.walk(ast.parse((TESTS / f"{path}.py").read_text()))
                if isinstance(node, ast.FunctionDef)
            }
            assert function in definitions, name
            both = sum(name in ROWS[row].get(each, ()) for each in ("virtual", "sockets")) == 2
            chooses = any(word in ast.unparse(definitions[function]) for word in ("world", "finished", "sockets"))
            assert chooses or not both or world == "alone", name
