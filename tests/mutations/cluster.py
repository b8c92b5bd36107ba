"""Mutations of runs on several machines."""

from __future__ import annotations

from tests.mutations.mutation import Mutation, always, edit

AGENTS = "tests/cluster/test_agents.py::"

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
        "testbed.cluster.clocks:ClockComparison.useful",
        edit("if sample.error_ns <= min(others)", ""),
        ("tests/cluster/test_clocks.py::test_slow_answers_do_not_count_beside_quick_ones",),
    ),
    "control messages carry no code": Mutation(
        "testbed.cluster.control:ControlConnection._code",
        always(b"0" * 32),
        (f"{AGENTS}test_a_stranger_is_no_agent",),
    ),
    "throughput is measured from the sender's clock": Mutation(
        "testbed.engine.overlay.group:ThroughputMeter.bytes_per_s",
        edit("message.began_s", "message.sent_at_s"),
        ("tests/engine/test_throughput_meter.py::test_bytes_over_the_time_that_a_transfer_took",),
    ),
    "a checkpoint counts before all machines have sent their part": Mutation(
        "testbed.cluster.files:_settle",
        edit("manifest.is_file() and all(", "manifest.is_file() or all("),
        ("tests/cluster/test_files.py::test_a_checkpoint_counts_when_all_its_parts_are_home",),
    ),
    "signals to nodes on other machines are not sent": Mutation(
        "testbed.cluster.processes:AgentProcesses.send_signal",
        edit("if agent is not None:", "if agent is None:"),
        ("tests/cluster/test_faults.py::test_a_stopped_process_goes_on",),
    ),
}
