"""What a run leaves and what is made of it: results, sweeps, command, analysis; and the emulated lines."""

from __future__ import annotations

from typing import Literal, TypedDict

from tests.mutations.mutation import Mutation, always, edit, instead

FIGURES = ("tests/analysis/test_figures.py",)
EVENTS = ("tests/results/test_events.py",)
SUMMARY, TABLES = ("tests/results/test_summary.py",), ("tests/results/test_tables.py",)
METRICS, BREAKDOWN = ("tests/analysis/test_metrics.py",), ("tests/analysis/test_breakdown.py",)
PREDICTION = ("tests/execution/test_prediction.py",)
CLUSTER = ("tests/cluster/test_sweep_pool.py",)
SESSION = ("tests/execution/test_session.py",)
LINE, SWEEP = ("tests/emulation/test_pure.py",), ("tests/execution/test_sweep_settings.py",)
REFUSALS, TRACES = "tests/cli/test_refusals.py", "tests/topologies/test_traces.py"
MUTATIONS: dict[str, Mutation] = {
    "workers that were lost have rounds to do": Mutation(
        "testbed.results.summary:_completed_rounds", edit('_gone(frames["faults"]).keys() | ', ""), SUMMARY
    ),
    "workers that never joined have rounds to do": Mutation(
        "testbed.results.summary:_late_comers", always(set()), SUMMARY
    ),
    "times count from the last restart": Mutation(
        "testbed.results.scalars:Scalars.take",
        edit("if self._start_s is None", "if True"),
        ("tests/results/test_scalars.py",),
    ),
    "counters that begin anew are those of the run": Mutation(
        "testbed.results.summary:counts", edit(".where(now >= before, now)", ""), SUMMARY
    ),
    "first rounds that an earlier run has done are compared": Mutation(
        "testbed.results.fidelity:_rounds", edit('if rounds["round"].min() > 0:', "if False:"), SUMMARY
    ),
    "the manifest has the commit of the user's own repository": Mutation(
        "testbed.results.manifest:_read_git_state", edit('"ls-files", "--error-unmatch",', '"status",'), SUMMARY
    ),
    "paths that are no UTF-8 end a run": Mutation(
        "testbed.results.atomic:write_text", edit('errors="backslashreplace"', ""), ("tests/results/test_atomic.py",)
    ),
    "a warning of a path that is no UTF-8 ends a node": Mutation(
        "testbed.results.events:_escaped", instead(lambda event: event), EVENTS
    ),
    "a process with a name that is no UTF-8 ends a run": Mutation(
        "testbed.process_id:start_ticks",
        edit(".read_bytes()", ".read_text().encode()"),
        ("tests/results/test_owner.py",),
    ),
    "code beside a script is of no version": Mutation("testbed.execution.sweep_files:source_digest", always(""), SWEEP),
    "what runs write beside a script is code": Mutation(
        "testbed.execution.sweep_files:source_digest", edit("each.suffix in _SOURCES and", ""), SWEEP
    ),
    "live logs of a sweep are not closed": Mutation(
        "testbed.execution.sweep_run:_execute",
        edit("follower.end(run.path)", "pass"),
        ("tests/api/test_callbacks.py::test_each_run_of_a_sweep_has_a_live_log",),
    ),
    "a point is tried again for ever": Mutation(
        "testbed.execution.sweep_cluster:ClusterPool._may_try_again", edit("tried < ATTEMPTS", "tried < 9"), CLUSTER
    ),
    "an unfit machine gets more points": Mutation(
        "testbed.execution.sweep_cluster:ClusterPool._start", edit("sorted(self._unfit)", "[]"), CLUSTER
    ),
    "a point outlives the command that sent it": Mutation(
        "testbed.execution.sweep_machine:_Machine._wait", edit("os.kill(pid, signal.SIGKILL)", "pass"), CLUSTER
    ),
    "the status of a point comes home before its files": Mutation(
        "testbed.execution.sweep_machine:_packed", edit("not in (_STATUS, _LOG)", "!= _LOG"), CLUSTER
    ),
    "what a machine of a sweep cannot unpack is sent to it": Mutation(
        "testbed.execution.sweep_machine:_packed", edit("return None", "return entry"), CLUSTER
    ),
    "sizes of a model take a GPU": Mutation(
        "testbed.execution.devices:least_gpus", edit("if not uses_gpus(plan):", "if not per_worker and False:"), CLUSTER
    ),
    "a damaged file of a point ends its sweep": Mutation(
        "testbed.execution.sweep_pool:_state", edit("except TestbedError", "except ZeroDivisionError"), CLUSTER
    ),
    "a run that completes while it is stopped is interrupted": Mutation(
        "testbed.execution.session:_stop", edit("told.status in COMPLETED", "False"), SESSION
    ),
    "who leaves as the scenario says degrades the run": Mutation(
        "testbed.execution.host:attempt",
        edit(' and event.get("message") != HAS_LEFT', ""),
        ("tests/faults/test_continue.py::test_the_result_says_that_nodes_were_lost",),
    ),
    "progress waits for who is gone": Mutation(
        "testbed.display.state:RunState._take_change", always(None), ("tests/display/test_display.py",)
    ),
    "rounds of an earlier run count as quick ones": Mutation(
        "testbed.display.remaining:Remaining.skip", always(None), ("tests/display/test_display.py",)
    ),
    "a machine keeps the files of its points": Mutation(
        "testbed.execution.sweep_machine:main", edit("remove(place)", "pass"), CLUSTER
    ),
    "each point of a sweep reads the code again": Mutation(
        "testbed.execution.sweep_points:_dependencies", edit("cache(code_version)", "code_version"), CLUSTER
    ),
    "a machine whose disk is full goes on with a part of the files": Mutation(
        "testbed.execution.sweep_machine:_Machine.serve",
        edit("MachineUnfit(self._unfit) if self._unfit else", ""),
        CLUSTER,
    ),
    "what ended the process of a machine is not told": Mutation(
        "testbed.execution.sweep_worker:MachineProcess._last_line", always(""), CLUSTER
    ),
    "links in a folder of data are not followed": Mutation(
        "testbed.execution.sweep_files:content_digest", edit("_followed(path)", "_below(path, False)"), SWEEP
    ),
    "the rate of a link is judged by that at the sample": Mutation(
        "emulation.monitor:Monitor.queues", edit("max(self._highest_bps[name], link.configured_bps)", "0"), LINE
    ),
    "a rate that was set within a sample is an excess": Mutation(
        "testbed.results.fidelity:_links",
        edit('highest_bps = np.fmax(highest_bps, links["highest_bps"].astype(float))', "pass"),
        SUMMARY,
    ),
    "a node without descriptors looks for callers all the time": Mutation(
        "testbed.realtime.connecting:Acceptor._wait_for_descriptors",
        always(None),
        ("tests/realtime/test_acceptor.py::test_a_node_without_descriptors_says_so_and_accepts_callers_later",),
    ),
    "results of deployments are refused": Mutation(
        "testbed.results.summary:RunResult",
        instead(TypedDict("RunResult", {"back_end": Literal["emulate", "simulate", "local", "exact"]})),
        SUMMARY,
    ),
    "too many open files are a matter of the run directory": Mutation(
        "testbed.errors:of_os", edit("if error.errno in EXHAUSTED:", "if False:"), ("tests/units/test_errors.py",)
    ),
    "points that compile find no compiler": Mutation(
        "testbed.execution.sweep_run:warm_up", edit("any(map(may_compile, plans))", "False"), CLUSTER
    ),
    "a run on a cluster names copies of files": Mutation(
        "testbed.execution.sweep_run:_as_sent", edit("to_json(origin.plan)", 'b"{}"'), CLUSTER
    ),
    "code is read where it was written": Mutation(
        "testbed.execution.sweep_files:_own_code",
        edit("path=copies[file.path])", "path=file.path)"),
        ("tests/cluster/test_sweep_files.py",),
    ),
    "an address that does not answer is an error of testbed's own": Mutation(
        "testbed.cluster.connection:_reachable",
        edit("except (OSError, OverflowError) as error", "except ZeroDivisionError as error"),
        ("tests/cluster/test_connection.py",),
    ),
    "claims are decided without what --only left out": Mutation(
        "analysis.studies.engine:claims_of",
        edit("if missing else each", "if False else each"),
        ("tests/analysis/test_studies.py::test_what_only_leaves_out_is_in_no_verdict",),
    ),
    "rounds that cannot be told apart are ranked": Mutation(
        "analysis.validation:_order", edit(" * differs", ""), ("tests/analysis/test_validation.py",)
    ),
    "the headline evaluates models of one data centre": Mutation(
        "analysis.studies.experiments.headline:sweeps",
        edit("{**STACKS[stack], **size}", '{**STACKS[stack], **size, "training.evaluate_every": "1"}'),
        ("tests/analysis/test_studies.py::test_the_headline_evaluates_models_that_all_data_centres_have_averaged",),
    ),
    "a technique is judged by the seeds that reached the target": Mutation(
        "analysis.studies.verdicts.comparison:factors",
        edit("missing = int(ours[column].isna().sum())", "ours, missing = ours.dropna(subset=[column]), 0"),
        ("tests/analysis/test_verdicts.py",),
    ),
    "a twin that never reaches the target is left out": Mutation(
        "analysis.studies.verdicts.comparison:factors",
        edit('theirs[column].fillna(theirs["training_s"])', "theirs[column]"),
        ("tests/analysis/test_verdicts.py",),
    ),
    "the best learning rate is not the one that is soonest": Mutation(
        "analysis.studies.verdicts.comparison:best_rate",
        edit('if rows["to_target_s"].notna().any()', "if False"),
        ("tests/analysis/test_verdicts.py",),
    ),
    "the compiler is absent for good": Mutation(
        "testbed.execution.compiler:_Absent.__getattr__",
        edit("importlib.import_module(NAME)", "self.__dict__"),
        ("tests/execution/test_compiler.py",),
    ),
    "the display counts a data centre that has completed nothing": Mutation(
        "testbed.display.state:RunState._move",
        edit("if before != after:", "if False:"),
        ("tests/display/test_display.py",),
    ),
    "a changed result is believed": Mutation(
        "testbed.results.summary:_content_sha256", always("0"), (*SUMMARY, *METRICS)
    ),
    "figures have type 3 fonts": Mutation(
        "analysis.figures.panels:PaperFigure.savefig", edit('"pdf.fonttype": 42', '"pdf.fonttype": 3'), FIGURES
    ),
    "setup counts as training": Mutation(
        "testbed.results.summary:_wan", edit('(wan["round"] >= 0) & (wan["key"] >= 0)', 'wan["round"] > -100'), SUMMARY
    ),
    "parameters agree if one node says so": Mutation(
        "testbed.results.summary:_training", edit("len(digests) == 1 if digests else None", "True"), SUMMARY
    ),
    "the time between rounds counts": Mutation(
        "testbed.results.summary:covered_round_time_s",
        edit("union(edges[rows]).total()", "float(edges[rows].max() - edges[rows].min())"),
        SUMMARY,
    ),
    "the time to a target includes the start": Mutation(
        "testbed.results.summary:training_start_s", always(0.0), (*SUMMARY, *METRICS)
    ),
    "slow links are faithful": Mutation("testbed.results.fidelity:_link_problem", always(""), SUMMARY),
    "late traces are faithful": Mutation("testbed.results.fidelity:_reasons", edit("> LATE_S", "> 1e9"), SUMMARY),
    "slow steps are faithful": Mutation("testbed.results.fidelity:_reasons", edit("> OVERRUN_SHARE", "> 1"), SUMMARY),
    "long rounds are faithful": Mutation("testbed.results.fidelity:_round_reasons", always([]), SUMMARY),
    "all rounds are compared with the first ones": Mutation(
        "testbed.results.fidelity:_rounds", edit('once[once["round"] < count]', "once"), SUMMARY
    ),
    "rounds that some workers have not done are predicted": Mutation(
        "testbed.execution.prediction:_Rounds.common",
        edit("min(*self._done.values()", "max(*self._done.values()"),
        PREDICTION,
    ),
    "rounds after a fault are predicted": Mutation(
        "testbed.execution.prediction:_Rounds.common", edit("self._faulty_round, *faulty", "*faulty"), PREDICTION
    ),
    "rounds in which a fault comes are predicted": Mutation(
        "testbed.execution.prediction:_Rounds.common", edit(", *faulty)", ")"), PREDICTION
    ),
    "a damaged line ends the reading of a log": Mutation(
        "testbed.results.tables:_read", edit("return _read_by_line(lines, schema)", "raise"), TABLES
    ),
    "a log is written only at its end": Mutation(
        "testbed.results.events:_EventFile.append", edit(">= self._due_s", ">= 1e9"), EVENTS
    ),
    "the last events of a simulation are not encoded": Mutation(
        "testbed.results.events:_EventFile._flush", edit("if self.events:", "if False:"), EVENTS
    ),
    "the events of a simulation are kept to its end": Mutation(
        "testbed.results.events:_EventFile.encode", always(None), EVENTS
    ),
    "a large Plan is looked through for infinity": Mutation(
        "testbed.plan.model:from_json",
        edit("msgspec.json.decode(text, type=Plan)", "msgspec.convert(_without_null(msgspec.json.decode(text)), Plan)"),
        ("tests/plan/test_build.py",),
    ),
    "a tensor without memory brings sympy": Mutation(
        "testbed.buffers:empty_like",
        edit("torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)", "torch.empty_like(tensor)"),
        ("tests/units/test_buffers.py",),
    ),
    "sizes without memory are computed with": Mutation(
        "testbed.buffers:computed", edit("if one.is_meta", "if False"), ("tests/units/test_buffers.py",)
    ),
    "a new process of a node writes on in the part of the one before": Mutation(
        "testbed.results.events:_EventFile._new_part", edit("exist_ok=False", "exist_ok=True"), EVENTS
    ),
    "all points of a sweep have one seed": Mutation(
        "testbed.scenario.sweep:SweepSettings.seeds_from", lambda before: lambda self, first: (0, 0), SWEEP
    ),
    "points are named without their code": Mutation("testbed.execution.code_version:code_version", always("0"), SWEEP),
    "divergence is never noticed": Mutation(
        "testbed.results.divergence:divergence",
        always(""),
        ("tests/api/test_api.py::test_a_training_that_diverges_is_called_so",),
    ),
    "a loss that rises is no divergence": Mutation(
        "testbed.results.divergence:divergence",
        edit("end > _LOSS_RISE * first", "False"),
        ("tests/results/test_divergence.py",),
    ),
    "numbers that are not finite are a failure": Mutation(
        "testbed.execution.host:attempt",
        edit('status = "diverged" if', 'status = "failed" if'),
        ("tests/api/test_api.py::test_numbers_that_are_not_finite_end_a_diverged_run",),
    ),
    "nodes are killed with what they have recorded": Mutation(
        "testbed.realtime.node_processes:NodeProcesses.__exit__",
        edit("signal.SIGTERM", "signal.SIGKILL"),
        ("tests/realtime/test_fleet.py",),
    ),
    "a node that dies slowly never starts again": Mutation(
        "testbed.realtime.fleet:Fleet._start_again",
        edit("self._returning.add(name)", "pass"),
        ("tests/realtime/test_fleet.py",),
    ),
    "a request to stop is forgotten while nodes end": Mutation(
        "testbed.realtime.fleet:Fleet._outcome",
        edit('self._plan.recovery.on_failure == "restart"', "False"),
        ("tests/realtime/test_fleet.py",),
    ),
    "a request to stop is an exception in the fleet": Mutation(
        "testbed.execution.host:_on_launcher", edit("callable(handler)", "False"), ("tests/execution/test_host.py",)
    ),
    "what follows the run directory is lost": Mutation(
        "testbed.execution.host:_told_directory",
        edit("os.read(0, 1)", "os.read(0, 4096)"),
        ("tests/execution/test_host.py",),
    ),
    "nodes are forked beside a thread that imports": Mutation(
        "testbed.execution.early_imports:finish", always(None), ("tests/execution/test_host.py",)
    ),
    "a host of the wrong kind takes a run": Mutation(
        "testbed.execution.session:same_host", always(True), ("tests/cli/test_command.py",)
    ),
    "a host without a run is left": Mutation(
        "testbed.execution.session:_end", edit("_kill(process)", "return"), ("tests/execution/test_session.py",)
    ),
    "SIGTERM leaves a verb's temporary files": Mutation(
        "testbed.cli.main:main", edit("take_interrupts(), ", ""), ("tests/cli/test_interrupts.py",)
    ),
    "a sweep ends with the reader of its output": Mutation(
        "testbed.cli.sweep_progress:SweepProgress.warn",
        edit("suppress(OSError)", "suppress(ZeroDivisionError)"),
        ("tests/cli/test_interrupts.py",),
    ),
    "a host that ends early ends the command": Mutation(
        "emulation.journal:Journal.process",
        edit("suppress(ProcessLookupError)", "suppress(ZeroDivisionError)"),
        SESSION,
    ),
    "a child of a sweep waits for its parent's display": Mutation(
        "testbed.execution.sweep_run:_write_directly",
        always(None),
        ("tests/execution/test_sweep.py::test_a_child_prints_though_its_parents_display_is_being_drawn",),
    ),
    "a daemon's way with children stays": Mutation(
        "testbed.cli.main:main", edit("== signal.SIG_IGN", "is None"), ("tests/cli/test_interrupts.py",)
    ),
    "a comparison does not name runs that were interrupted": Mutation(
        "testbed.display.summary:comparison_table",
        edit('row["status"] == "done"', 'row["status"] != "diverged"'),
        ("tests/display/test_display.py",),
    ),
    "numba needs a place of its own": Mutation(
        "testbed.numba_cache:compiled_by_numba",
        edit("except RuntimeError", "except ZeroDivisionError"),
        ("tests/units/test_runtime_directory.py",),
    ),
    "the end of the terminal is no interrupt": Mutation(
        "testbed.cli.interrupts:_numbers",
        edit("== signal.SIG_IGN", "!= signal.SIG_IGN"),
        ("tests/cli/test_interrupts.py",),
    ),
    "a scenario's files overwrite those of the user": Mutation(
        "testbed.cli.scenarios:execute", edit("shallow=False)]", "shallow=False) and False]"), (REFUSALS,)
    ),
    "a damaged run stops the cleaning of others": Mutation(
        "testbed.cli.clean:execute", edit("except TestbedError as", "except ZeroDivisionError as"), (REFUSALS,)
    ),
    "a csv forgets when its trace ends": Mutation("topologies.traces.write:_RESOLUTION_S", instead(1e9), (TRACES,)),
    "two links of a label are one": Mutation(
        "topologies.readers.speeds:_from_label",
        edit("rate *= float(before or 1) * float(after or 1)", "pass"),
        ("tests/topologies/test_readers.py",),
    ),
    "a point keeps the results of other data": Mutation(
        "testbed.execution.sweep_points:content_digest", always(""), SWEEP
    ),
    "a file of strangers names code": Mutation(
        "testbed.scenario.look_up:may_name_code", always(True), ("tests/scenario/test_outside_formats.py",)
    ),
    "a callback cannot end a run": Mutation(
        "testbed.callbacks:Callbacks._call",
        edit("raise KeyboardInterrupt from stop", "return"),
        ("tests/api/test_callbacks.py::test_a_callback_ends_the_run_with_its_results",),
    ),
    "step times of a file are ignored": Mutation(
        "testbed.plan.placement:_site_nodes",
        edit("device.step_times or {}", "{}"),
        ("tests/scenario/test_step_times.py",),
    ),
    "an ideal network has headers": Mutation(
        "testbed.simulation.tcp_model:TcpModel.of_plan",
        edit("goodput=1.0", "goodput=0.9"),
        ("tests/simulation/test_ideal_network.py",),
    ),
    "a finished diverged run is as good as done": Mutation(
        "testbed.cli.run:_already_done",
        edit("Diverged.exit_code if", "0 if"),
        ("tests/api/test_api.py::test_a_training_that_diverges_is_called_so",),
    ),
    "the estimate of the remaining time is not smoothed": Mutation(
        "testbed.display.remaining:Remaining.take",
        edit("(self._done - completed) / self._memory", "-100"),
        ("tests/display/test_display.py",),
    ),
    "progress is printed at every event": Mutation(
        "testbed.display.progress:PlainLines.show",
        edit("now - self._last_s >= LINE_EVERY_S", "True"),
        ("tests/display/test_display.py",),
    ),
    "a live log takes events out of order": Mutation(
        "testbed.results.scalars:EventTail.poll",
        edit("newest_s - self.lag_s", "newest_s"),
        ("tests/results/test_scalars.py",),
    ),
    "what a full disk took of some events stays": Mutation(
        "testbed.results.events:_EventFile._write", edit("file.truncate(end)", "pass"), EVENTS
    ),
    "a disk that becomes full takes events in silence": Mutation(
        "testbed.results.events:_EventFile._write", edit("while data:", "if data:"), EVENTS
    ),
    "an ended stream takes more events": Mutation(
        "testbed.results.events:_EventFile._end_part", edit("finally:", "except ZeroDivisionError:"), EVENTS
    ),
    "who stands for many workers counts once": Mutation(
        "testbed.results.summary:covered_round_time_s",
        edit("(copies or {}).get(str(node), 1)", "1"),
        ("tests/simulation/test_fold.py",),
    ),
    "a restart doubles the workers of a round": Mutation(
        "testbed.results.rounds:RoundCounter.take",
        edit("{})[node] = event", '{})[node, event["loss"]] = event'),
        ("tests/results/test_scalars.py",),
    ),
    "seeds that did not reach the target are passed over": Mutation(
        "analysis.studies.experiments.headline:_times_sooner",
        edit("if missing:", "if False:"),
        ("tests/analysis/test_studies.py::test_a_headline_of_which_a_seed_has_not_reached_the_target_fails",),
    ),
    "links are measured as if they could be slower": Mutation(
        "emulation.measurement:_one_way_s", edit("shaped_bps(link.rate_bps)", "link.rate_bps"), LINE
    ),
    "background traffic ends with its first connection": Mutation(
        "emulation.traffic:Streams.step", edit("except OSError:", "except ZeroDivisionError:"), LINE
    ),
    "a round is complete when one worker has done it": Mutation(
        "testbed.results.rounds:RoundCounter.take",
        edit("min(self._last", "max(self._last"),
        ("tests/results/test_scalars.py",),
    ),
    "columns without a header are guessed": Mutation(
        "topologies.traces.formats:detect",
        edit("return file.refuse(", "return likely or file.refuse("),
        ("tests/topologies/test_malformed_traces.py",),
    ),
    "a sweep runs failed points again unasked": Mutation(
        "testbed.execution.sweep_pool:open_points",
        edit('(state == "failed" and not retry_failed)', "False"),
        ("tests/execution/test_sweep.py",),
    ),
    "a child of a sweep that fails goes on as its parent": Mutation(
        "testbed.execution.sweep_run:fork",
        edit(
            "finally:\n                os._exit(code)",
            "except ZeroDivisionError:\n                pass\n            os._exit(code)",
        ),
        ("tests/execution/test_sweep.py::test_a_child_that_fails_in_any_way_leaves_the_others_alone",),
    ),
    "time to accuracy takes the last evaluation": Mutation(
        "testbed.results.summary:time_to_target_s", edit("reached.min()", "reached.max() + 1"), METRICS
    ),
    "top-k of the benchmark of codecs forgets what it did not send": Mutation(
        "analysis.benchmarks.codecs:torch_topk",
        edit("unsent[indices] = 0", "unsent.zero_()"),
        ("tests/analysis/benchmarks/test_codecs.py",),
    ),
    "a file of the user's hides no trace of the library": Mutation(
        "topologies.library:find_trace", edit(" and not Path(name).exists()", ""), ("tests/topologies/test_traces.py",)
    ),
    "confidence intervals are of one standard deviation": Mutation(
        "analysis.metrics:mean_of", edit("t.ppf(0.975, len(array) - 1)", "1.0"), METRICS
    ),
    "bytes over the WAN are those of all links": Mutation(
        "analysis.metrics:wan_of_training", edit('(transfers["tier"] == "wan") & ', ""), METRICS
    ),
    "relays of an overlay are no network": Mutation(
        "analysis.breakdown:per_round", edit("(*UPWARDS, BLOCK, *DOWNWARDS)", '("push", "value")'), BREAKDOWN
    ),
    "blocks that a server did not take delayed it": Mutation(
        "analysis.breakdown:_way_up", edit(" and hop.end <= taken_s", ""), BREAKDOWN
    ),
    "a push in blocks that waits for its turn waits for others": Mutation(
        "analysis.breakdown:_split", edit('"wan": index.queueing', '"waiting": index.queueing'), BREAKDOWN
    ),
    "where logs are brief all is waiting": Mutation(
        "analysis.load:StoredRun.logs_work",
        instead(property(lambda self: True)),
        ("tests/analysis/test_report.py::test_brief_logs_are_not_taken_for_waiting",),
    ),
    "a link is used before training as well": Mutation(
        "analysis.metrics:utilisation", edit(".clip(lower=begin_s)", ""), METRICS
    ),
    "equal runs are in order": Mutation(
        "analysis.studies.claims:ordered",
        edit("if gap <= -reach", "if gap < -reach"),
        ("tests/analysis/test_studies.py::test_runs_that_are_equal_support_no_difference",),
    ),
    "seeds that have diverged are left out of differences": Mutation(
        "analysis.studies.study:Results.differences",
        edit("self._of_both(", "self.pairs("),
        ("tests/analysis/test_studies.py::test_a_seed_that_diverged_is_not_passed_over",),
    ),
    "a repeated round takes the transfers of all attempts": Mutation(
        "analysis.breakdown:_of_attempt", instead(lambda found, span: found), BREAKDOWN
    ),
    "values make replies that were sent before": Mutation(
        "analysis.breakdown:_value_before", edit(" and hop.end <= sent.end", ""), BREAKDOWN
    ),
    "waits at several servers are added up": Mutation(
        "analysis.waits:matrix",
        edit("max(table.loc[at, of], mean_s)", "table.loc[at, of] + mean_s"),
        ("tests/analysis/test_measures.py",),
    ),
    "waits of several workers are added up": Mutation(
        "analysis.waits:_members", always({}), ("tests/analysis/test_measures.py",)
    ),
    "who sums inside a data centre waits for the others": Mutation(
        "analysis.waits:_for_the_last", edit(".where(inside, ", ".where(False, "), ("tests/analysis/test_peers.py",)
    ),
    "waits are divided by the rounds of the result": Mutation(
        "analysis.waits:matrix", edit("rounds.get(at, 1.0)", "8"), ("tests/analysis/test_measures.py",)
    ),
    "what never arrives may be sooner": Mutation(
        "analysis.studies.verdicts.comparison:Factors.decide",
        edit("if self.lost and low == -INFINITY", "if False"),
        ("tests/analysis/test_verdicts.py",),
    ),
    "seeds without a value are left out of an order": Mutation(
        "analysis.studies.claims:_missing",
        always(0),
        ("tests/analysis/test_studies.py::test_a_seed_without_a_value_is_not_passed_over",),
    ),
    "values that a user sweeps are as good as seeds": Mutation(
        "analysis.studies.engine:_points_of",
        edit("if not swept", "if True"),
        ("tests/analysis/test_studies.py::test_a_setting_that_the_user_sweeps_is_no_seed",),
    ),
    "a setting of the user's makes variants equal": Mutation(
        "analysis.studies.engine:_asked",
        edit("and not _differ(left[first], left[second])", "and False"),
        ("tests/analysis/test_studies.py::test_a_setting_that_tells_variants_apart_is_not_replaced",),
    ),
    "a server's work is a worker's": Mutation(
        "analysis.studies.columns:compute_ratio",
        edit('steps[steps["node"] == node]', "steps"),
        ("tests/analysis/test_studies.py::test_a_worker_that_serves_computes_for_itself_alone",),
    ),
    "what never varied has the effect that a fit begins with": Mutation(
        "analysis.efficiency:_constants",
        edit("np.ptp(points, axis=0) > 0", "np.ptp(points, axis=0) >= 0"),
        ("tests/analysis/test_efficiency.py",),
    ),
    "runs of equal names are exported over each other": Mutation(
        "analysis.load:distinct_names",
        edit("if name not in names", "if True"),
        ("tests/analysis/test_timeline.py::test_runs_of_equal_names_are_told_apart",),
    ),
    "an interrupt kills a sweep of the library": Mutation(
        "testbed.api:_run_to_its_end",
        edit("child.send_signal(signal.SIGINT)", "child.kill()"),
        ("tests/api/test_api.py::test_an_interrupted_sweep_ends_before_the_interrupt_is_raised",),
    ),
    "rounds that wait for a score are not told": Mutation("testbed.results.fidelity:_held_up", always([]), SUMMARY),
    "critical paths begin with the first value": Mutation(
        "analysis.breakdown:_value_before", edit("arrived[-1] if", "arrived[0] if"), BREAKDOWN
    ),
    "every technique is as fast as the base": Mutation(
        "analysis.metrics:speed_up", instead(lambda base_s, other_s: 1.0), METRICS
    ),
    "emulated delays are zero": Mutation(
        "emulation.shaping.delay_line:Line.release", edit("<= now_ns", "<= now_ns + 10**12"), LINE
    ),
    "late packets are not counted": Mutation("emulation.shaping.delay_line:LATE_NS", instead(1 << 60), LINE),
    "a route by source goes into the kernel's own tables": Mutation(
        "emulation.commands:_FIRST_TABLE",
        instead(100),
        ("tests/emulation/test_pure.py::test_routes_by_source_have_tables_that_the_kernel_does_not_use_itself",),
    ),
    "emulated losses have no bursts": Mutation(
        "emulation.shaping.path:PacketFates.__init__",
        edit("self._bursty, self.in_burst = path.bursty", "self._bursty, self.in_burst = False"),
        LINE,
    ),
    "a packet that waits for an earlier one is late": Mutation(
        "emulation.shaping.delay_line:Line.arrive",
        edit("max(before_ns, now_ns + cells[DelayField.DELAY_NS])", "now_ns + cells[DelayField.DELAY_NS]"),
        LINE,
    ),
    "what the kernel cannot hand to the delay line is not counted": Mutation(
        "emulation.shaping.delay_line:_take", edit("queue.overflows()", "0"), LINE
    ),
    "a container's root needs no user namespace": Mutation(
        "emulation.sandbox:needs_user_namespace",
        edit(" or effective & _NEEDED_CAPABILITIES != _NEEDED_CAPABILITIES", ""),
        LINE,
    ),
    "traces of a resumed run begin anew": Mutation(
        "testbed.execution.emulate:_train", edit('line.get("trained_s", 0.0)', "0.0"), LINE
    ),
    "a change of a link's delay ends its bursts of losses": Mutation(
        "emulation.shaping.delay_line:Line.arrive", edit(", self._fates.in_burst", ""), LINE
    ),
    "a link that is down lets duplicates pass": Mutation(
        "emulation.shaping.path:Path.down", edit("loss=1.0", "loss=1.0, duplication=self.duplication"), LINE
    ),
    "a shaper sets what another has changed": Mutation(
        "emulation.shaping.base:Shaper.set_path",
        edit("spec.row), **values)", "spec.row), **asdict(spec.path) | values)"),
        LINE,
    ),
    "a link comes up when its delay changes": Mutation(
        "emulation.shaping.table:path_in", edit("if cells[DelayField.DOWN]", "if False"), LINE
    ),
    "the load is that of all cores": Mutation(
        "emulation.monitor:core_shares", edit(" or cores", " and cores"), ("tests/emulation/test_pure.py",)
    ),
    "background traffic waits for a run's best-effort channels": Mutation(
        "emulation.traffic:_type_of_service", edit("if not channels:", "if True:"), LINE
    ),
    "the last datagrams of a burst are never sent": Mutation(
        "emulation.traffic:DatagramTraffic.step", edit("due = self._send(now_s, self._burst[1])", "due = 0.0"), LINE
    ),
    "a burst that is shorter than a frame sends nothing": Mutation(
        "emulation.traffic:DatagramTraffic.step", edit(", -begun", ", 0.0"), LINE
    ),
    "slow background traffic is always too late": Mutation(
        "emulation.traffic:DatagramTraffic._send", edit("max(2 * FRAME_BYTES, ", "max(0, "), LINE
    ),
    "a link's packets are drawn in another way than the kernel's": Mutation(
        "emulation.shaping.path:kernel_random", edit("<< 18", "<< 17"), LINE
    ),
    "every change of a link repeats the same losses": Mutation(
        "emulation.shaping.path:change_seed", edit("/{change}", ""), LINE
    ),
    "the command always ends well": Mutation(
        "testbed.cli.main:_report", lambda before: lambda *of: before(*of) and 0, ("tests/cli/test_command.py",)
    ),
    "a FIFO in the place of a file is waited for": Mutation(
        "testbed.regular_file:_at_once",
        edit("flags | os.O_NONBLOCK", "flags"),
        ("tests/fuzz/test_fuzz.py::test_what_is_no_regular_file_is_refused_at_once",),
    ),
    "a fault may come after the last round": Mutation(
        "testbed.plan.faults:_too_late",
        always(("", "")),
        ("tests/faults/test_plan.py::test_a_fault_after_the_run_is_refused",),
    ),
    "the plan of a run may be exchanged": Mutation(
        "analysis.load:_plan",
        edit("if sha256 and", "if False and"),
        ("tests/analysis/test_load.py::test_an_exchanged_plan_is_noticed",),
    ),
    "a writer on another machine is taken for dead": Mutation(
        "testbed.results.atomic:_is_left",
        edit("if space == pid_space():", "if True:"),
        ("tests/results/test_atomic.py::test_sweep_spares_what_another_machine_may_be_writing",),
    ),
    "a run on another machine is taken for crashed": Mutation(
        "testbed.process_id:RunOwner.elsewhere",
        always(False),
        ("tests/results/test_rundir.py::test_a_run_elsewhere_lives_until_nothing_has_changed_for_an_hour",),
    ),
    "a run elsewhere lives for ever": Mutation(
        "testbed.results.atomic:changed_lately",
        always(True),
        ("tests/results/test_rundir.py::test_a_run_elsewhere_lives_until_nothing_has_changed_for_an_hour",),
    ),
    "files of the kernel of a dead exact run stay": Mutation(
        "testbed.results.rundir:remove_leftovers",
        edit("path.unlink()", "pass"),
        ("tests/cli/test_command.py::test_clean_buries_the_dead_only",),
    ),
    "a claim removes the status with all else": Mutation(
        "testbed.results.rundir:_clear",
        edit('if name != "status.json"', "if name"),
        ("tests/results/test_rundir.py::test_a_claim_that_is_killed_at_any_step_can_be_repeated",),
    ),
    "a final status needs space": Mutation(
        "testbed.results.rundir:RunDirectory.set_status",
        edit("if error.errno not in FULL or state not in FINISHED:", "if True:"),
        ("tests/results/test_rundir.py::test_a_final_status_needs_no_space",),
    ),
    "a failed run keeps a good fidelity report": Mutation(
        "testbed.results.rundir:end_unforeseen",
        edit("if state is None:", "if False:"),
        ("tests/results/test_rundir.py::test_a_run_that_ends_unforeseen_has_no_good_fidelity",),
    ),
    "every kill is the kernel's": Mutation(
        "testbed.results.oom_kills:_more",
        always(True),
        ("tests/faults/test_memory.py::test_who_killed_is_said_as_far_as_it_is_known",),
    ),
    "every stranger gets a line": Mutation(
        "testbed.realtime.connecting:TOLD_EVERY_S",
        instead(0.0),
        ("tests/realtime/test_acceptor.py::test_what_is_not_told_is_counted",),
    ),
}
