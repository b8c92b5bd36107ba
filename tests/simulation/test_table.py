"""Every closed form and every invariant that the virtual world is to keep, and the tests that hold it to them.

A row whose test is renamed or dropped fails here. Tolerances stand in the tests: 1e-9 relative for the flow network,
headers (some 1e-5) for rounds of the engine's roles.
"""

from __future__ import annotations

import ast
from pathlib import Path

from tests.for_each import for_each

TESTS = Path(__file__).parent.parent
FLOWS, TCP, RUN = "simulation/test_flows.py", "simulation/test_tcp.py", "simulation/test_run.py"
SYNC = "policy/test_sync.py"
ROUNDS, TECHNIQUES = "simulation/test_closed_forms.py", "simulation/test_closed_forms_techniques.py"

CLOSED_FORMS = {
    "one flow": f"{FLOWS}::test_one_flow_takes_size_over_capacity",
    "n equal flows": f"{FLOWS}::test_n_equal_flows_end_together",
    "staggered arrivals": f"{FLOWS}::test_staggered_arrivals_share_as_a_processor",
    "weights 2:1": f"{FLOWS}::test_weights_divide_two_to_one",
    "per-flow cap": f"{FLOWS}::test_a_capped_flow_leaves_the_rest_to_the_other",
    "a cap that changes": f"{FLOWS}::test_a_cap_that_changes_counts_from_then_on",
    "parking lot": f"{FLOWS}::test_parking_lot_rates",
    "latency": f"{TCP}::test_a_warm_transfer_takes_delay_and_size_over_rate",
    "integral of a trace": f"{FLOWS}::test_a_flow_ends_where_the_integral_of_its_capacity_is_its_size",
    "cold start in rounds": f"{TCP}::test_a_cold_transfer_pays_slow_start_in_rounds",
    "window over round trip": f"{TCP}::test_a_window_limit_caps_the_rate",
    "random loss": f"{TCP}::test_loss_limits_reno_as_mathis_says_and_bbr_hardly",
    "FSA bound by the WAN, the server and the LAN": f"{ROUNDS}::test_fsa",
    "MultiGPS with 1, 2 and 4 servers": f"{ROUNDS}::test_multigps_divides_the_servers_port",
    "HFA's formula": f"{ROUNDS}::test_hfa",
    "HFA of single steps is FSA": f"{ROUNDS}::test_hfa_of_single_steps_takes_fsas_time",
    "MixedSync of one data centre is FSA": f"{ROUNDS}::test_mixedsync_of_one_data_centre_takes_fsas_time",
    "MixedSync's staleness D - 1": f"{ROUNDS}::test_mixedsync_is_stale_by_all_the_others",
    "SSP(0) is BSP in time": f"{ROUNDS}::test_ssp_of_no_staleness_takes_bsps_time_and_tap_is_never_slower",
    "SSP(0) is BSP in bits": "engine/sync/test_equivalences.py::test_ssp_0_is_bsp",
    "SSP without a bound is TAP": "engine/sync/test_equivalences.py::test_ssp_without_a_bound_is_tap",
    "ESync's reach times": f"{SYNC}::test_esync_reach_times_differ_by_less_than_one_step",
    "ring": "simulation/test_ring.py::test_the_closed_form_on_equal_links",
    "ring on uneven links": "simulation/test_ring.py::test_as_the_schedules_say_on_uneven_links",
    "ring, ASTRA-sim's values": "simulation/test_ring.py::test_astra_sim_golden_values",
    "halving and doubling, trees": "engine/collectives/test_times.py::test_within_two_percent_of_the_closed_form",
    "hierarchical": "engine/collectives/test_times.py::test_rings_of_blueconnect_share_the_uplink_of_a_data_centre",
    "TSEngine's logarithm": f"{TECHNIQUES}::test_tsengines_trees_have_logarithmic_depth",
    "P3's two layers": f"{TECHNIQUES}::test_a_two_layer_pipeline",
    "order of the pipelines": f"{TECHNIQUES}::test_the_order_of_the_pipelines",
    "DGT with K = 1 is FSA": f"{TECHNIQUES}::test_dgt_of_all_that_is_reliable_takes_fsas_time",
    "DGT's K·M/U": f"{TECHNIQUES}::test_dgt_pushes_its_share",
    "DGT's time does not depend on loss": f"{TECHNIQUES}::test_dgts_time_does_not_depend_on_what_is_lost",
    "Bi-Sparse's bytes, and where D·t = 1/2": f"{TECHNIQUES}::test_bisparses_bytes",
    "FP16 halves": f"{ROUNDS}::test_half_precision_halves_the_payload_on_every_hop",
    "multiplicity": f"{FLOWS}::test_a_multiplicity_is_so_many_flows",
    "folded as unfolded": "simulation/test_fold.py::test_folded_workers_end_their_rounds_when_they_would_unfolded",
    "numba as Python, network": f"{FLOWS}::test_numba_gives_the_same_bits",
    "numba as Python, run": f"{RUN}::test_numba_gives_the_same_run",
    "order of insertion": f"{FLOWS}::test_the_order_of_insertion_does_not_matter",
    "SimGrid's values": "analysis/benchmarks/test_simgrid.py::test_simgrids_golden_values",
}

INVARIANTS = {
    "brute force, 1 600 dynamic cases": f"{FLOWS}::test_random_dynamic_cases_agree_with_brute_force",
    "brute force, hypothesis": f"{FLOWS}::test_agrees_with_brute_force",
    "bottleneck property, load within capacity": f"{FLOWS}::test_the_bottleneck_property",
    "delivered and to come make up the size at any time": f"{FLOWS}::test_what_is_delivered_and_left_is_the_size",
    "DGT: delivered, late and lost make up what was sent": f"{TECHNIQUES}::test_dgts_blocks_are_delivered_late_or_lost",
    "the clock never goes back": f"{FLOWS}::test_what_is_delivered_and_left_is_the_size",
    "one bottleneck: more capacity delays nothing": f"{FLOWS}::test_more_capacity_never_delays_a_single_bottleneck",
    "a run: more capacity delays no round": f"{ROUNDS}::test_more_wan_never_delays_a_round",
    "each key is updated once a round": f"{ROUNDS}::test_every_round_updates_every_key_once",
    "every contribution counts once": "check/test_shipped.py::test_it_keeps_the_contract_of_its_axis",
    "symmetry": f"{ROUNDS}::test_even_data_centres_end_their_rounds_together",
    "scaling, network": f"{FLOWS}::test_scaling_bytes_and_capacity_leaves_times_unchanged",
    "scaling, bytes and rates": f"{ROUNDS}::test_twice_the_rates_and_twice_the_bytes_take_the_same_time",
    "scaling, times": f"{ROUNDS}::test_all_times_twice_as_long_make_a_round_twice_as_long",
    "determinism over processes and hash seeds": f"{RUN}::test_equal_plans_give_equal_bits_in_any_process",
    "an idle network schedules nothing": f"{FLOWS}::test_an_idle_network_schedules_nothing",
}


@for_each("row", [*CLOSED_FORMS.items(), *INVARIANTS.items()])
def test_is_held_by_a_test(row: tuple[str, str]) -> None:
    path, name = row[1].split("::")
    tree = ast.parse((TESTS / path).read_text(encoding="utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
