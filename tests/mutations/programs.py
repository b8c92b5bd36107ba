"""Programs of a user: what ends a run, what is read of their output, who may run commands."""

from __future__ import annotations

from tests.mutations.mutation import Mutation, always, edit

RUNS, METRICS = ("tests/execution/programs/test_programs.py",), ("tests/execution/programs/test_metrics.py",)
MUTATIONS: dict[str, Mutation] = {
    "a program that failed has ended well": Mutation(
        "testbed.execution.programs.supervisor:Supervisor._raise_failure", always(None), RUNS
    ),
    "a server of a program must end by itself": Mutation(
        "testbed.execution.programs.launch:_process", edit('program.ends == "all" or', "True or"), RUNS
    ),
    "processes start before the first one listens": Mutation(
        "testbed.execution.programs.supervisor:Supervisor._wait_for_port", always(None), RUNS
    ),
    "a step begins with the line before whatever it says": Mutation(
        "testbed.execution.programs.metrics:Metrics._events", edit("now_s - seconds", "self._begin_s"), METRICS
    ),
    "an evaluation is part of the round after it": Mutation(
        "testbed.execution.programs.metrics:Metrics._events",
        edit("begin_s, self._begin_s = self._begin_s, now_s", "begin_s = self._begin_s"),
        METRICS,
    ),
    "a run that waits for no process is done at once": Mutation(
        "testbed.plan.settings:program_of",
        edit("len(workers) == 1", "False"),
        (f"{RUNS[0]}::test_a_run_that_would_wait_for_no_process_is_refused",),
    ),
    "faults of a program have the deadline of a training": Mutation(
        "testbed.plan.faults:refuse_late_faults",
        edit("scenario.workload.timeout", "deadline_s"),
        (f"{RUNS[0]}::test_faults_of_a_program_come_before_its_own_deadline",),
    ),
    "metrics of another run are read": Mutation(
        "testbed.execution.programs.metrics:FileTail.__init__",
        edit("if path.is_file()", "if False"),
        (f"{METRICS[0]}::test_what_another_run_has_written_is_passed_over",),
    ),
    "commands of strangers are run": Mutation(
        "testbed.scenario.reading.files:allows_code",
        always(True),
        (f"{RUNS[0]}::test_commands_of_strangers_need_a_word",),
    ),
    "a status that a script has chosen is an error of ours": Mutation(
        "testbed.realtime.fleet_status:NodeExit.error",
        edit("_ERRORS.get(self.code, RunFailed) if self.cause else RunFailed", "_ERRORS.get(self.code, RunFailed)"),
        ("tests/realtime/test_fleet_status.py",),
    ),
    "connections that a library has closed are not counted": Mutation(
        "testbed.execution.distributed.sockets:Meter.__init__",
        edit("os.dup(descriptor)", "descriptor"),
        ("tests/execution/distributed/test_sockets.py",),
    ),
    "sections without effect are taken beside a command": Mutation(
        "testbed.scenario.sections.program:_sections_without_effect", always(()), RUNS
    ),
}
