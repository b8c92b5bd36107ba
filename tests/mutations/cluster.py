"""Mutations of runs on several machines."""

from __future__ import annotations

from tests.mutations.mutation import Mutation, always, edit

AGENTS = "tests/cluster/test_agents.py::"
PROCESSES = "tests/cluster/test_processes.py::"
DIVISION = "tests/emulation/test_division.py::"
UNDERLAY = "tests/cluster/test_underlay.py::"

MUTATIONS = {
    "events of other machines are not corrected": Mutation(
        "testbed.cluster.agents:Agents.correct_events",
        always(None),
        (f"{AGENTS}test_events_are_by_one_clock_though_each_machine_has_its_own",),
    ),
    "a question's whole round trip counts as the clock's offset": Mutation(
        "testbed.cluster.clocks:sample_of",
        edit("(answered_ns - heard_ns)) // 2", "(answered_ns - heard_ns))"),
        ("tests/cluster/test_clocks.py::test_one_question_bounds_the_offset",),
    ),
    "the latest question counts, however slow it was": Mutation(
        "testbed.cluster.clocks:_bounds",
        always(False),
        ("tests/cluster/test_clocks.py::test_slow_answers_do_not_count_beside_quick_ones",),
    ),
    "each event looks at all questions to a clock": Mutation(
        "testbed.cluster.clocks:_interpolated",
        edit("knots[max(0, after - 1) : after + 1]", "knots"),
        ("tests/cluster/test_clocks.py::test_a_time_is_looked_up_beside_two_questions_however_many_there_were",),
    ),
    "an attempt that could not begin is not ended": Mutation(
        "testbed.cluster.processes:AgentProcesses.__init__",
        edit("self.__exit__()", "pass"),
        (
            "tests/cluster/test_processes.py"
            "::test_an_attempt_whose_machine_is_lost_while_it_begins_leaves_room_for_another",
        ),
    ),
    "a machine that was lost is measured after the run": Mutation(
        "testbed.execution.cluster:_paths",
        edit(" if not agent.lost", ""),
        ("tests/cluster/test_processes.py::test_machines_that_were_lost_are_not_measured_after_the_run",),
    ),
    "the clock of a far machine is unknown when nodes start": Mutation(
        "testbed.cluster.agents:Agents.start_missing",
        edit("round(agent.clock.offset_ns(time.monotonic_ns()))", "0"),
        (f"{PROCESSES}test_the_clock_of_a_far_machine_is_known_when_nodes_start",),
    ),
    "control messages carry no code": Mutation(
        "testbed.cluster.control:ControlConnection._code",
        always(b"0" * 32),
        (f"{AGENTS}test_a_stranger_is_no_agent",),
    ),
    "who knows the name of an agent is taken for it": Mutation(
        "testbed.cluster.control:ControlConnection.first",
        always({"hello": {"clock_of": ""}}),
        (f"{AGENTS}test_a_stranger_that_knows_a_name_keeps_no_agent_out",),
    ),
    "a driver without descriptors accepts no more agents": Mutation(
        "testbed.cluster.agent_connections:AgentConnections._accept_all",
        edit("if self._listener.fileno() < 0:", "if True:"),
        (f"{AGENTS}test_a_driver_without_descriptors_accepts_agents_later",),
    ),
    "an agent may open a thousand files": Mutation(
        "testbed.environment:allow_descriptors",
        always(None),
        (f"{AGENTS}test_an_agent_and_its_nodes_may_open_as_many_files_as_the_machine_allows",),
    ),
    "throughput is measured from the sender's clock": Mutation(
        "testbed.engine.overlay.group:ThroughputMeter.bytes_per_s",
        edit("message.began_s", "message.sent_at_s"),
        ("tests/engine/test_throughput_meter.py::test_bytes_over_the_time_that_a_transfer_took",),
    ),
    "the underlay's delay comes on top of a link's": Mutation(
        "emulation.shaping.base:Shaper.set_path",
        edit('values["delay_s"] - spec.underlay_s', 'values["delay_s"]'),
        (f"{DIVISION}test_the_delay_of_the_underlay_is_subtracted",),
    ),
    "a link between two machines is shaped at both": Mutation(
        "emulation.shaping.install:link_specs",
        edit('"" if part is not None and not part.has(vertex) else ', ""),
        (f"{DIVISION}test_a_link_has_its_rate_where_it_begins_and_its_delay_where_it_ends",),
    ),
    "both tunnels of two machines have one number": Mutation(
        "emulation.division:vni",
        edit("first + number", "first"),
        (f"{DIVISION}test_a_cable_between_machines_has_a_tunnel_at_each_end",),
    ),
    "links between machines are counted one by one": Mutation(
        "testbed.cluster.underlay:_sums",
        edit("if total > there and", "if False and"),
        (f"{UNDERLAY}test_links_that_are_too_fast_together_are_refused",),
    ),
    "the headers of tunnels take nothing": Mutation(
        "testbed.cluster.underlay:_rate_bps",
        edit(" * _TUNNEL_SHARE", ""),
        (f"{UNDERLAY}test_a_link_faster_than_the_machines_network_is_refused",),
    ),
    "an underlay that is slower than a link is not noticed": Mutation(
        "testbed.cluster.underlay:_problems",
        edit("path.delay_s - least_s > ", "path.delay_s > 1e9 + "),
        (f"{UNDERLAY}test_a_link_shorter_than_the_machines_network_is_refused",),
    ),
    "a replay keeps the first clock": Mutation(
        "emulation.replay:StartClock._read",
        always(None),
        ("tests/emulation/test_pure.py::test_a_replay_waits_by_the_clock_as_it_is_known_last",),
    ),
    "a checkpoint counts before all machines have sent their part": Mutation(
        "testbed.cluster.files:_settle",
        edit("manifest.is_file() and all(", "manifest.is_file() or all("),
        ("tests/cluster/test_files.py::test_a_checkpoint_counts_when_all_its_parts_are_home",),
    ),
    "a restarted deployment begins anew": Mutation(
        "testbed.execution.cluster:run_attempts",
        edit("checkpoint_files(plan, directory, report, with_states=False)", "None"),
        (f"{PROCESSES}test_a_deployment_resumes_the_newest_checkpoint_that_is_intact",),
    ),
    "events that are home stay on their machine, too": Mutation(
        "testbed.cluster.files:SentFiles.send_new",
        edit("os.truncate(path, 0)", "pass"),
        ("tests/cluster/test_files.py",),
    ),
    "what came of a checkpoint that was given up stays": Mutation(
        "testbed.cluster.files:remove_incomplete",
        always(None),
        ("tests/cluster/test_files.py",),
    ),
    "a measurement that fails after the run fails it": Mutation(
        "testbed.execution.cluster:_measure",
        edit('if when == "before":', "if True:"),
        (f"{PROCESSES}test_a_measurement_that_fails_after_the_run_fails_no_run",),
    ),
    "a peer that takes little at a time is lost": Mutation(
        "testbed.cluster.control:ControlConnection._write",
        edit("            end_s = time.monotonic() + SEND_LIMIT_S\n", ""),
        (f"{PROCESSES}test_a_peer_that_takes_little_at_a_time_is_not_lost",),
    ),
    "what a library moves begins by the clock of the sender": Mutation(
        "testbed.cluster.clocks:_is_stamped",
        always(True),
        ("tests/cluster/test_clocks.py::test_events_of_two_clocks_come_to_be_of_one",),
    ),
    "damaged events vanish when times are corrected": Mutation(
        "testbed.cluster.clocks:correct_file",
        edit("line if event is None", "b'' if event is None"),
        ("tests/cluster/test_clocks.py",),
    ),
    "signals to nodes on other machines are not sent": Mutation(
        "testbed.cluster.processes:AgentProcesses.send_signal",
        edit("if agent is not None:", "if agent is None:"),
        ("tests/cluster/test_faults.py::test_a_stopped_process_goes_on",),
    ),
}
