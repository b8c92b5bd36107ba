"""An execution trace of PyTorch and the profiler's times of the same run make one trace."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import ScenarioError
from testbed.job_trace import pytorch
from testbed.job_trace.model import ALL_REDUCE, BARRIER, BROADCAST, COLLECTIVE, COMPUTE, RECEIVE, SEND, RankTrace
from testbed.job_trace.reading import read_job
from tests.end_to_end.runs import run_scenario
from tests.for_each import for_each
from tests.job_trace import pytorch_job

TENSOR = [1, 2, 0, 1000, 4, "cpu"]
ALL_REDUCE_SCHEMA = "c10d::allreduce_(Tensor[] tensors, Object group, bool async_op=True, int timeout=-1) -> ()"
SCENARIO = """
version: 1
name: own
seed: 1
run: {on: simulate}
topology:
  data_centers: [{name: a, central: true, workers: 1}, {name: b, workers: 1}]
  links: [{between: [a, b], rate: RATE, delay: DELAY}]
workload: {trace: "et_{rank}.json", kineto: "kineto_{rank}.json"}
"""


def node(id_: int, name: str, values: list[Any], schema: str = "", **attributes: Any) -> dict[str, Any]:
    """Return an operator as PyTorch notes it; its record function has the same number."""
    noted = {"rf_id": id_, "op_schema": schema, **attributes}
    attrs = [{"name": key, "type": "", "value": value} for key, value in noted.items()]
    return {"id": id_, "name": name, "ctrl_deps": 1, "inputs": {"values": values}, "outputs": {}, "attrs": attrs}


def event(name: str, begin: float, end: float, cat: str = "cpu_op", tid: int = 1, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": begin, "dur": end - begin, "args": args}


def of(number: int) -> dict[str, int]:
    return {"Record function id": number}


def read(folder: Path, nodes: list[dict[str, Any]], events: list[dict[str, Any]]) -> RankTrace:
    (folder / "et.json").write_text(json.dumps({"schema": "1.1.1-chakra.0.0.4", "nodes": nodes}))
    (folder / "kineto.json.gz").write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    return pytorch.read(folder / "et.json", folder / "kineto.json.gz", 0)


def told(trace: RankTrace) -> list[tuple[str, int, tuple[int, ...]]]:
    """Return what each node is, how long it takes (µs), and what it waits for."""
    return [(each.operation or each.kind, round(each.duration_s * 1e6), each.after) for each in trace.nodes]


def test_a_thread_is_cut_where_it_communicates_and_waits(tmp_path: Path) -> None:
    nodes = [
        node(3, "c10d::allreduce_", [[TENSOR], "<Object>", True, -1], ALL_REDUCE_SCHEMA),
        node(4, "gloo:all_reduce", [TENSOR]),
        node(6, "c10d::barrier", [[1, 2, 0, 1, 1, "cpu"], "<Object>", False, -1], ALL_REDUCE_SCHEMA),
        node(7, "gloo:barrier", []),
    ]
    events = [
        event("aten::mm", 0, 1000, **of(2)),
        event("c10d::allreduce_", 1000, 1050, **of(3)),
        event("aten::mm", 1050, 2000, **of(5)),  # beside the operation, for which the thread then stands still
        event("gloo:all_reduce", 1100, 5000, "user_annotation", 2, **of(4)),
        event("aten::add", 5010, 5510),
        event("c10d::barrier", 6000, 6010, **of(6)),
        event("gloo:barrier", 6005, 6009, "user_annotation", 2, **of(7)),
        event("aten::add", 6600, 6800),
    ]
    trace = read(tmp_path, nodes, events)
    assert told(trace) == [
        ("compute", 1000, ()),
        ("compute", 950, (0,)),
        (ALL_REDUCE, 0, (0,)),
        ("compute", 1000, (1, 2)),  # from the operation's end to the barrier, with what Python did between operators
        (BARRIER, 0, (3,)),
        ("compute", 790, (3, 4)),  # whoever calls a barrier waits for it, however short that was
    ]
    assert [each.size_bytes for each in trace.nodes if each.kind == COLLECTIVE] == [4000, 0]
    assert not [each for each in trace.nodes if each.kind == COMPUTE and not each.on_host]


def test_gradients_are_needed_at_the_optimizer_step(tmp_path: Path) -> None:
    """The operation is over before anyone waits for it, on the network where the job was traced."""
    nodes = [
        node(3, "c10d::allreduce_", [[TENSOR], "<Object>", True, -1], ALL_REDUCE_SCHEMA),
        node(4, "gloo:all_reduce", [TENSOR]),
    ]
    events = [
        event("aten::mm", 0, 1000, **of(2)),
        event("c10d::allreduce_", 1000, 1050, **of(3)),
        event("gloo:all_reduce", 1060, 1100, "user_annotation", 2, **of(4)),
        event("aten::mm", 1050, 2000),
        event("Optimizer.step#SGD.step", 2000, 2300, "user_annotation"),
    ]
    expected = [("compute", 1000, ()), ("compute", 950, (0,)), (ALL_REDUCE, 0, (0,)), ("compute", 300, (1, 2))]
    assert told(read(tmp_path, nodes, events)) == expected


def test_messages_have_their_peers_and_tags(tmp_path: Path) -> None:
    schema = "c10d::send(Tensor[] tensors, Object group, int dst, int tag) -> Work"
    nodes = [
        node(3, "c10d::send", [[TENSOR], "<Object>", 1, 7], schema),
        node(4, "gloo:send", [TENSOR]),
        node(5, "c10d::recv_", [[TENSOR], "<Object>", 2, 8], schema),
        node(6, "gloo:recv", [TENSOR]),
    ]
    events = [
        event("c10d::send", 0, 100, **of(3)),
        event("gloo:send", 50, 90, "user_annotation", **of(4)),
        event("c10d::recv_", 200, 300, **of(5)),
        event("gloo:recv", 250, 290, "user_annotation", **of(6)),
    ]
    found = read(tmp_path, nodes, events).nodes
    messages = [(each.kind, each.peer, each.tag, each.size_bytes) for each in found if each.kind != COMPUTE]
    assert messages == [(SEND, 1, 7, 4000), (RECEIVE, 2, 8, 4000)]


def test_kernels_follow_their_launches_and_their_stream(tmp_path: Path) -> None:
    """NCCL's kernel follows the last one launched before it; a stream that stood still has waited for it."""
    groups = json.dumps([{"pg_name": "0", "ranks": []}, {"pg_name": "1", "ranks": [0, 1]}])
    nodes = [
        node(1, "## process_group:init ##", [groups]),
        node(3, "c10d::broadcast_", [[TENSOR], "<Object>", 1, 0, True, -1], ALL_REDUCE_SCHEMA),
        node(4, "record_param_comms", [[TENSOR]], pg_name="1"),
        node(5, "nccl:broadcast", [TENSOR]),
    ]
    runtime = {"cat": "cuda_runtime"}
    events = [
        event("aten::mm", 0, 100, **of(2)),
        event("cudaLaunchKernel", 50, 60, **runtime, correlation=1),
        event("gemm", 100, 1100, "kernel", 7, correlation=1, stream=7),
        event("c10d::broadcast_", 200, 300, **of(3), **{"External id": 33}),
        event("nccl:broadcast", 210, 290, **of(5), **{"External id": 35}),
        event("cudaLaunchKernel", 250, 260, **runtime, correlation=2, **{"External id": 35}),
        event("ncclDevKernel_Broadcast", 1100, 3000, "kernel", 20, correlation=2, **{"External id": 35}),
        event("aten::relu", 300, 400),
        event("cudaLaunchKernel", 350, 360, **runtime, correlation=3),
        event("relu", 3010, 3510, "kernel", 7, correlation=3),
        event("cudaDeviceSynchronize", 500, 3600, **runtime, correlation=4),
        event("aten::item", 3600, 3700),
    ]
    trace = read(tmp_path, nodes, events)
    by_name = {each.name: each for each in trace.nodes}
    names = {each.id: each.name for each in trace.nodes}
    assert trace.groups == {"0": (), "1": (0, 1)}
    broadcast = by_name["c10d::broadcast_"]
    assert (broadcast.operation, broadcast.group, broadcast.peer, broadcast.size_bytes) == (BROADCAST, "1", 1, 4000)
    assert "gemm" in [names[id_] for id_ in broadcast.after]
    assert {"gemm", "c10d::broadcast_"} <= {names[id_] for id_ in by_name["relu"].after}
    assert "relu" in [names[id_] for id_ in by_name["aten::item"].after]
    assert [each.name for each in trace.nodes if each.kind == COMPUTE and not each.on_host] == ["gemm", "relu"]
    assert by_name["gemm"].duration_s == pytest.approx(1e-3)


MM = [event("aten::mm", 0, 1, **of(2))]


@for_each(
    "nodes, events, problem",
    [
        ([node(2, "aten::mm", [])], [event("aten::mm", 0, 1)], "have no 'Record function id'"),
        ([node(9, "aten::mm", [])], MM, "have no operator in common, so they come from two different runs"),
        (
            [node(2, "aten::mm", []), node(3, "gloo:unheard_of", [])],
            [*MM, event("gloo:unheard_of", 1, 2, "user_annotation", **of(3))],
            "node 3 'gloo:unheard_of': is not a known collective operation",
        ),
    ],
)
def test_files_that_do_not_belong_together_are_refused(
    tmp_path: Path, nodes: list[dict[str, Any]], events: list[dict[str, Any]], problem: str
) -> None:
    with pytest.raises(ScenarioError) as refused:
        read(tmp_path, nodes, events)
    assert problem in str(refused.value) and "rank 0" in str(refused.value)


def test_files_of_something_else_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(ScenarioError, match="is no execution trace of PyTorch's ExecutionTraceObserver"):
        pytorch.read(tmp_path / "a.json", tmp_path / "a.json", 1)
    (tmp_path / "et.json").write_text(json.dumps({"schema": "1.0.1", "nodes": []}))
    with pytest.raises(ScenarioError, match=r"has schema 1\.0\.1, and 1\.0\.2-chakra\.0\.0\.4 is the oldest"):
        pytorch.read(tmp_path / "et.json", tmp_path / "a.json", 1)
    (tmp_path / "et.json").write_text(json.dumps({"schema": "2.0.0-chakra.0.1.0", "nodes": []}))
    with pytest.raises(ScenarioError, match=r"et\.json: rank 1: .* newest that is read; .* with an older PyTorch"):
        pytorch.read(tmp_path / "et.json", tmp_path / "a.json", 1)
    (tmp_path / "et.json").write_text(json.dumps({"schema": "1.0.2-chakra.0.0.4", "nodes": []}))
    with pytest.raises(ScenarioError, match="is no trace of PyTorch's profiler"):
        pytorch.read(tmp_path / "et.json", tmp_path / "a.json", 1)
    (tmp_path / "a.json").write_text('{"traceEv')
    with pytest.raises(ScenarioError, match=r"rank 1: .*; write it again"):
        pytorch.read(tmp_path / "et.json", tmp_path / "a.json", 1)


@pytest.mark.slow  # 20 s
def test_a_job_of_pytorch_runs_on_two_networks(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "tests.job_trace.pytorch_job", str(tmp_path)], check=True, timeout=120)
    job = read_job(f"{tmp_path}/et_{{rank}}.json", f"{tmp_path}/kineto_{{rank}}.json")
    for trace in job.ranks:
        sums = [each for each in trace.nodes if each.operation == ALL_REDUCE]
        assert [each.size_bytes for each in sums] == [4 * (64 * 256 + 256 + 256 * 10 + 10)] * pytorch_job.STEPS
        assert [each.kind for each in trace.nodes].count(SEND if trace.rank == 0 else RECEIVE) == 1
        for each in sums:  # what follows a step of the optimizer has waited for it
            assert any(each.id in other.after for other in trace.nodes)
    taken_s = []
    for name, rate, delay in (("near", "10 Gbit/s", "0.1 ms"), ("far", "100 Mbit/s", "80 ms")):
        (tmp_path / f"{name}.yaml").write_text(SCENARIO.replace("RATE", rate).replace("DELAY", delay))
        finished = run_scenario(tmp_path / name, "simulate", scenario=tmp_path / f"{name}.yaml", network=None)
        assert finished.outcome.status == "done"
        taken_s.append(max(each["t"] - each["t0"] for each in finished.of_kind("round")))
    delays_s = 0.08 * (2 * pytorch_job.STEPS + 1)  # of each sum there and back, and of the message
    assert taken_s[1] > taken_s[0] + delays_s
