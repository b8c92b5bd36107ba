"""Chakra's files are read as they are written; broken ones are refused, with file, rank, node and cure."""

from __future__ import annotations

import gzip
import json
import math
import sys
from pathlib import Path

import pytest

from testbed.errors import CapabilityError, ScenarioError
from testbed.job_trace import chakra, schema
from testbed.job_trace.model import ALL_GATHER, BROADCAST, MEMORY, NOTHING, Rates, TraceNode
from testbed.job_trace.reading import files_of, groups_of, read_job, totals_of
from testbed.job_trace.writing import write_chakra, write_goal
from tests.for_each import for_each
from tests.job_trace import shipped
from tests.job_trace.made import collective, compute, job, memory, receive, send, written

EVERY_KIND = (
    [
        TraceNode(0, "begin", NOTHING),
        compute(1, 0.25, 0, on_host=True),
        compute(2, 0.0, 0, operations=5e9, size_bytes=4_000_000),
        memory(3, 1_000_000, 2),
        send(4, 1, 4096, 1, 3, tag=7),
        collective(5, 1_000_000, 4, group="pair"),
        collective(6, 8000, 5, operation=ALL_GATHER),
        collective(7, 8000, 6, operation=BROADCAST, peer=1),
    ],
    [
        receive(4, 0, 4096, tag=7),
        collective(5, 1_000_000, 4, group="pair"),
        collective(6, 8000, operation=ALL_GATHER),
        collective(7, 8000, 6, operation=BROADCAST, peer=1),
    ],
)
RATES = Rates(1e12, 1e9)
Ranks = tuple[list[TraceNode], ...]


@pytest.mark.parametrize("as_json", [True, False])
def test_what_is_written_is_read(tmp_path: Path, as_json: bool) -> None:
    if not as_json:
        pytest.importorskip("google.protobuf")
    made = job(*EVERY_KIND, groups={"pair": (0, 1)})
    files = write_chakra(made, tmp_path, "job", as_json=as_json)
    if not as_json:
        files[0].write_bytes(gzip.compress(files[0].read_bytes()))  # which Chakra's tools read, too
    found = read_job(str(tmp_path / "job"), groups=str(tmp_path / "job.groups.json"), rates=RATES)
    assert found.groups == made.groups
    assert [trace.nodes for trace in found.ranks] == [trace.nodes for trace in made.ranks]


def test_ranks_are_found_by_number(tmp_path: Path) -> None:
    for rank in range(11):
        (tmp_path / f"step_{rank}.et").touch()
    expected = [tmp_path / f"step_{rank}.et" for rank in range(11)]
    assert files_of(tmp_path) == files_of(tmp_path / "step_{rank}.et") == expected
    assert files_of(expected[3]) == [expected[3]]
    (tmp_path / "step_4.et").unlink()
    with pytest.raises(ScenarioError, match="rank 4 has no file, but rank 10 has one"):
        files_of(tmp_path)
    (tmp_path / "other_3.et").touch()
    with pytest.raises(ScenarioError, match=r"are both of rank 3; write the path with '\{rank\}'"):
        files_of(tmp_path)
    with pytest.raises(ScenarioError, match="there is no such trace"):
        files_of(tmp_path / "nothing")


def test_a_folder_of_folders_of_traces_is_refused_with_one_of_them(tmp_path: Path) -> None:
    """``testbed export RUN --format chakra --out DIR`` makes one for each run."""
    (tmp_path / "out" / "run").mkdir(parents=True)
    with pytest.raises(ScenarioError, match=r"the folder has no files of ranks, .* such as 'out/run'"):
        files_of(tmp_path / "out")
    with pytest.raises(ScenarioError, match=r"the folder has no files of ranks, .*; name another folder"):
        files_of(tmp_path / "out" / "run")


def test_a_truncated_file_is_refused_wherever_it_ends(tmp_path: Path) -> None:
    pytest.importorskip("google.protobuf")
    [path, _] = write_chakra(job(*EVERY_KIND), tmp_path, "job")
    whole = path.read_bytes()
    ends = []
    for length in range(1, len(whole)):
        path.write_bytes(whole[:length])
        try:
            ends.append(len(chakra.read(path, 0).nodes))
        except ScenarioError as error:
            assert str(path) in str(error) and "rank 0" in str(error)
    assert ends == list(range(1, len(EVERY_KIND[0])))  # where a node ends: the others of the job tell


def test_a_truncated_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.0.et"
    path.write_bytes(gzip.compress(b"some text")[:-5])
    with pytest.raises(ScenarioError, match="rank 0"):
        chakra.read(path, 0)


@for_each("metadata", ['{"version": "0.0.1"}', '{"attr": [{"name": "schema", "stringVal": "1.0.1-chakra.0.0.3"}]}'])
def test_an_old_schema_is_refused(tmp_path: Path, metadata: str) -> None:
    path = tmp_path / "job.0.json"
    path.write_text(metadata + '{"id": "1", "type": "COMP_NODE"}')
    with pytest.raises(ScenarioError, match=r"rank 0: has version .* 0\.0\.4 is the oldest that is read; convert"):
        chakra.read(path, 0)


@for_each(
    "version, problem",
    [
        ("9.0", "newest that is read"),
        ("0.0.5", "newest that is read"),
        ("1.2.0-chakra.0.1.0", "newest that is read"),
        ("new", "'new' is not a version"),
    ],
)
def test_an_unknown_schema_is_refused(tmp_path: Path, version: str, problem: str) -> None:
    path = tmp_path / "job.0.json"
    path.write_text(f'{{"version": "{version}"}}{{"id": "1", "type": "COMP_NODE"}}')
    with pytest.raises(ScenarioError, match="rank 0: ") as refused:
        chakra.read(path, 0)
    assert problem in str(refused.value)


def test_a_file_in_protobuf_names_the_package_that_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.protobuf", None)  # as if it were not installed
    schema.messages.cache_clear()
    path = tmp_path / "job.2.et"
    path.write_bytes(b"\x07\x0a\x050.0.4\x04\x08\x01\x18\x04")
    with pytest.raises(CapabilityError, match=r"job\.2\.et: rank 2: .* install it with .*testbed\[chakra\]"):
        chakra.read(path, 2)


@for_each("data, problem", [(b"", "is empty"), (b"hello world", "is neither JSON nor protobuf of Chakra's schema")])
def test_what_is_no_trace_is_refused_without_protobuf(tmp_path: Path, data: bytes, problem: str) -> None:
    path = tmp_path / "job.2.et"
    path.write_bytes(data)
    with pytest.raises(ScenarioError, match=rf"job\.2\.et: rank 2: {problem}"):
        chakra.read(path, 2)


def test_a_spoilt_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.0.et"
    whole = bytearray(gzip.compress(b"some text" * 100))
    whole[10] ^= 0xFF
    path.write_bytes(whole)
    with pytest.raises(ScenarioError, match="rank 0"):
        chakra.read(path, 0)


NODE = '{"version": "0.0.4"}{"id": "1", "name": "all", "type": '


@for_each(
    "text, problem",
    [
        (NODE + '"COMP_NODE", "dataDeps": ["7"]}', "node 1 'all': waits for node 7, which is not in the file"),
        (NODE + '"COMP_NODE", "ctrlDeps": ["7"]}', "node 1 'all': waits for node 7, which is not in the file"),
        (NODE + '"COMM_SEND_NODE"}', "node 1 'all': lacks attribute 'comm_size'"),
        (NODE + '"COMM_COLL_NODE"}', "node 1 'all': lacks attribute 'comm_type'"),
        (
            NODE + '"COMM_COLL_NODE", "attr": [{"name": "comm_type", "int64Val": "99"}]}',
            "node 1 'all': comm_type 99 is not one of 0 to 9",
        ),
        (
            NODE + '"COMM_COLL_NODE", "attr": [{"name": "comm_type", "int64Val": "0"}, {"name": "comm_size", '
            '"int64Val": "8"}, {"name": "involved_dim", "boolList": {"values": [true, false]}}]}',
            "node 1 'all': its group is given by dimensions of a topology",
        ),
        (NODE + '"COMP_NODE"}{"id": "1", "type": "COMP_NODE"}', "node 1: two nodes have this id"),
        (NODE + '"COMP_NODE"}{"id":', "what follows node 1 is not a node of Chakra"),
        (NODE + '"NO_NODE"}', "node 1 'all': has type 'NO_NODE', which is not one of INVALID_NODE, METADATA_NODE, "),
        (NODE + '"COMP_NODE"}\n[1, 2]', "what follows node 1 is not a node of Chakra, as it is not a JSON object"),
        (NODE + '"COMP_NODE", "attr": [7]}', "node 1 'all': cannot be read: a value is of another type than in Chakra"),
        (NODE + '"COMP_NODE", "attr": [{"boolVal": true}]}', "node 1 'all': cannot be read: it lacks 'name'"),
        (NODE + '"COMP_NODE", "dataDeps": [0.5]}', "node 1 'all': cannot be read: 0.5 is not a whole number"),
        (
            NODE + '"COMM_SEND_NODE", "attr": [{"name": "comm_size", "int64Val": 1.5}]}',
            "node 1 'all': cannot be read: 1.5 is not a whole number",
        ),
        (
            NODE + '"COMM_SEND_NODE", "attr": [{"name": "comm_size", "doubleVal": 1.5}]}',
            "node 1 'all': an attribute cannot be read: 1.5 is not a whole number",
        ),
        (
            NODE + '"COMM_COLL_NODE", "attr": [{"name": "comm_type", "int64Val": "-1"}]}',
            "node 1 'all': comm_type -1 is not one of 0 to 9",
        ),
        (
            NODE + '"COMM_SEND_NODE", "attr": [{"name": "comm_src", "int32Val": 2}]}',
            "node 1 'all': its comm_src is rank 2, but this is the file of rank 3",
        ),
        (
            NODE + '"COMM_RECV_NODE", "attr": [{"name": "comm_dst", "int32Val": 2}]}',
            "node 1 'all': its comm_dst is rank 2, but this is the file of rank 3",
        ),
        (
            NODE + '"COMP_NODE", "attr": [{"name": "is_cpu_op", "stringVal": "no"}]}',
            "node 1 'all': an attribute cannot be read: is_cpu_op is no, which is neither true nor false",
        ),
        ("", "is empty"),
        ("hello", "is not JSON"),
        ("5", "does not begin with a JSON object"),
        ('{"workload_graph": 5}', "its workload_graph is not a list of nodes"),
        ('{"workload_graph": [{"Id": 1, "NodeType": -3}]}', "node 1 '': has type -3, which is none"),
        ('{"version": "0.0.4"}', "has no node"),
        ('{"schema": "1.1.1-chakra.0.0.4", "nodes": []}', "write the file of the profiler as workload.kineto"),
        ('{"workload_graph": [{"Id": 1}]}', "entry 0 of its workload_graph cannot be read: it lacks 'NodeType'"),
        ("{", "is not JSON"),
    ],
)
def test_a_broken_file_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "job.3.json"
    path.write_text(text)
    with pytest.raises(ScenarioError) as refused:
        chakra.read(path, 3)
    assert str(refused.value).startswith(f"{path}: rank 3")
    assert problem in str(refused.value)


ALL = collective(5, 1000)


@for_each(
    "ranks, problem",
    [
        (([send(1, 1, -5)], [receive(1, 0, -5)]), "job.0.json: rank 0, node 1 'send 1': has a size of -5 bytes, which"),
        (
            ([send(1, 1, 10**30)], [receive(1, 0, 10**30)]),
            "node 1 'send 1': has a size of 1000000000000000000000000000000",
        ),
        (([collective(5, 10**17)], [collective(5, 10**17)]), "node 5 'all_reduce': has a size of 100000000000000000"),
        (([memory(1, -8)], [compute(1, 1)]), "rank 0, node 1 'load 1': has a size of -8 bytes"),
        (([compute(1, -1e-5)], [compute(1, 1)]), "rank 0, node 1 'compute 1': takes -1e-05 s, which is outside"),
        (([compute(1, 2.0**63 / 1e6)], [compute(1, 1)]), "rank 0, node 1 'compute 1': takes 9.22337e+12 s"),
        (([compute(1, 0, operations=-5)], [compute(1, 1)]), "node 1 'compute 1': has -5 operations, which no device"),
        (([send(1, 1, 8)], [compute(1, 1)]), "job.0.json: rank 0, node 1 'send 1': is never received"),
        (([compute(1, 1)], [receive(1, 0, 8)]), "job.1.json: rank 1, node 1 'receive 1': is never sent"),
        (
            ([send(1, 1, 8, tag=1)], [receive(1, 0, 8, tag=2)]),
            "node 1 'send 1': is never received; rank 0 sends 1 messages of tag 1 to rank 1, which receives 0",
        ),
        (([send(1, 1, 8)], [receive(2, 0, 9)]), "node 2 'receive 2': receives 9 bytes, but node 1 of rank 0 sends 8"),
        (([send(1, 5, 8)], [compute(1, 1)]), "node 1 'send 1': its peer is rank 5, but the others are 0 to 1"),
        (([send(1, 0, 8)], [compute(1, 1)]), "node 1 'send 1': its peer is rank 0"),
        (([ALL], [collective(6, 2000)]), "node 6 'all_reduce': is all_reduce of 2000 bytes, and all_reduce of 1000"),
        (
            ([ALL], [collective(6, 1000, operation=ALL_GATHER)]),
            "rank 1, node 6 'all_gather': is all_gather of 1000 bytes, and all_reduce of 1000 bytes at rank 0, node 5",
        ),
        (([ALL, collective(6, 8)], [ALL]), "rank 0, node 6 'all_reduce': rank 1 of its group has no operation after"),
        (([ALL], [compute(1, 1)]), "rank 0, node 5 'all_reduce': rank 1 of its group takes part in none"),
        (([collective(5, 8, group="x")], [ALL]), "nothing says who belongs to its process group 'x'"),
        (([collective(5, 8, operation=BROADCAST, peer=3)], [ALL]), "its root, rank 3, is not in its group"),
        (
            ([compute(1, 0, operations=5)], [compute(1, 1)]),
            "states 5 operations and no duration",
        ),
        (([memory(1, 8)], [compute(1, 1)]), "moves 8 bytes and states no duration; write workload.memory_rate"),
        (([compute(1, 1, 2), compute(2, 1, 1)], [compute(1, 1)]), "node 1 'compute 1': waits, by a circle"),
        # each receives before it sends, so that both wait for ever
        (
            ([receive(1, 1, 8), send(2, 1, 8, 1)], [receive(1, 0, 8), send(2, 0, 8, 1)]),
            "rank 0, node 1 'receive 1': waits, by a circle of dependencies, for its own end (so do node 2 of rank 0",
        ),
    ],
)
def test_a_job_that_cannot_be_played_is_refused(
    tmp_path: Path, ranks: tuple[list[TraceNode], ...], problem: str
) -> None:
    trace = written(tmp_path, *ranks)
    with pytest.raises(ScenarioError) as refused:
        read_job(str(trace))
    assert problem in str(refused.value)


@for_each(
    "content, problem",
    [
        ("[0, 1]", "it is not a JSON object"),
        ('{"all": 7}', "group 'all' has no list of ranks"),
        ('{"all": "01"}', "group 'all' has no list of ranks"),
        ('{"all": [[0], 1]}', "group 'all' has no list of ranks"),
        ('{"all": [0, 1.5]}', "1.5 is not a whole number"),
        ('{"all": [0, Infinity]}', "inf is not a whole number"),
        ('{"all": [0, 1, 1]}', "group 'all' has a rank twice"),
    ],
)
def test_a_broken_file_of_groups_is_refused(tmp_path: Path, content: str, problem: str) -> None:
    path = tmp_path / "groups.json"
    path.write_text(content)
    with pytest.raises(ScenarioError) as refused:
        groups_of((), str(path))
    assert str(refused.value) == f'{path}: is not a list of process groups, {{"NAME": [ranks]}}: {problem}'


def test_operations_of_two_groups_in_opposite_orders_wait_for_ever(tmp_path: Path) -> None:
    groups = {"a": (0, 1), "b": (0, 1)}
    first = [collective(1, 8, group="a"), collective(2, 8, 1, group="b")]
    second = [collective(1, 8, group="b"), collective(2, 8, 1, group="a")]
    trace = written(tmp_path, first, second, groups=groups)
    with pytest.raises(ScenarioError, match="rank 0, node 1 'all_reduce': waits, by a circle of dependencies"):
        read_job(str(trace), groups=str(tmp_path / "job.groups.json"))


def test_operations_of_a_group_wait_for_the_one_before(tmp_path: Path) -> None:
    """The first one waits for a message that follows the second one."""
    first = [receive(1, 1, 8), collective(2, 8, 1), collective(3, 8)]
    second = [collective(2, 8), collective(3, 8), send(1, 0, 8, 3)]
    with pytest.raises(ScenarioError, match="rank 0, node 1 'receive 1': waits, by a circle of dependencies"):
        read_job(str(written(tmp_path, first, second)))


def test_process_groups_are_those_that_pytorch_notes(tmp_path: Path) -> None:
    noted = json.dumps([{"pg_name": "1", "ranks": [0, 1]}, {"pg_name": "0", "ranks": []}])
    for rank in range(2):
        nodes = [
            {"attr": [{"name": "schema", "stringVal": "1.1.0-chakra.0.0.4"}]},
            {
                "id": "1",
                "name": "## process_group:init ##",
                "type": "METADATA_NODE",
                "inputs": {"values": str([noted])},
            },
            {
                "id": "2",
                "name": "all",
                "type": "COMM_COLL_NODE",
                "ctrlDeps": ["77"],  # the call stack, of which parts are left out
                "attr": [
                    {"name": "comm_type", "int64Val": "0"},
                    {"name": "comm_size", "int64Val": "64"},
                    {"name": "pg_name", "stringVal": "1"},
                ],
            },
        ]
        (tmp_path / f"job.{rank}.json").write_text("\n".join(map(json.dumps, nodes)))
    found = read_job(str(tmp_path))
    assert found.members("1") == found.members("0") == (0, 1)
    (tmp_path / "job.1.json").write_text((tmp_path / "job.1.json").read_text().replace("[0, 1]", "[1]"))
    with pytest.raises(ScenarioError, match=r"rank 1: process group '1' has ranks \[1\] here, and \[0, 1\] elsewhere"):
        read_job(str(tmp_path))


def test_the_feeders_json_is_read(tmp_path: Path) -> None:
    graph = [
        {"Id": 1, "Name": "mul", "NodeType": 4, "data_deps": [], "ctrlDeps": [99], "runtime": 28, "is_cpu_op": True},
        {"Id": 2, "Name": "all", "NodeType": 7, "data_deps": [1], "comm_type": 0, "comm_size": 64, "is_cpu_op": False},
    ]
    (tmp_path / "job.0.json").write_text(json.dumps({"workload_graph": graph}))
    [first, second] = read_job(str(tmp_path)).ranks[0].nodes
    assert (first.kind, first.duration_s, first.on_host) == ("compute", 28e-6, True)
    assert (second.operation, second.size_bytes, second.after) == ("all_reduce", 64, (1,))


def test_a_duration_follows_from_rates_where_none_is_stated() -> None:
    rates = Rates(operations_per_s=1e12, memory_bytes_per_s=1e9)
    assert rates.duration_s(compute(1, 0.5, operations=9e12)) == 0.5
    assert rates.duration_s(compute(1, 0.0, operations=5e9, size_bytes=4_000_000)) == 5e-3  # it computes for longer
    assert math.isclose(rates.duration_s(TraceNode(1, "", MEMORY, size_bytes=8_000_000)), 8e-3)
    totals = totals_of(job(*EVERY_KIND, groups={"pair": (0, 1)}), rates)
    assert totals.ranks == 2
    assert totals.sent_bytes == 4096 + 1_000_000 + 8000 + 8000
    assert math.isclose(totals.work_s, 0.25 + 5e-3 + 1e-3)


def test_work_that_no_run_could_wait_for_is_refused_at_its_node(tmp_path: Path) -> None:
    trace = written(tmp_path, [compute(1, 0, operations=1e15)], [memory(1, 8)])
    with pytest.raises(ScenarioError, match="rank 0, node 1 'compute 1': takes 1e\\+15 s at the rates of workload"):
        read_job(str(trace), rates=Rates(1.0, 1e9))


def test_a_rank_that_sends_too_much_in_all_is_refused_at_its_node() -> None:
    sends = [send(id_, 1, 6 * 10**11) for id_ in range(2)]
    receives = [receive(id_, 0, 6 * 10**11) for id_ in range(2)]
    with pytest.raises(ScenarioError, match=r"job\.0: rank 0, node 1 'send 1': has 600000000000 bytes, with which"):
        totals_of(job(sends, receives), Rates())


def test_goal_has_computations_and_messages(tmp_path: Path) -> None:
    path = tmp_path / "job.goal"
    write_goal(job([compute(1, 1e-3), send(2, 1, 64, 1, tag=3)], [receive(1, 0, 64, tag=3)]), path)
    assert path.read_text().split("\n") == [
        "num_ranks 2",
        "",
        "rank 0 {",
        "l1: calc 1000000",
        "l2: send 64b to 1 tag 3",
        "l2 requires l1",
        "}",
        "",
        "rank 1 {",
        "l1: recv 64b from 0 tag 3",
        "}",
        "",
    ]
    with pytest.raises(ScenarioError, match="rank 0, node 5 'all_reduce': GOAL has no collective operations"):
        write_goal(job([ALL], [ALL]), path)


def test_the_shipped_trace_is_the_one_that_is_made_here(tmp_path: Path) -> None:
    for path in write_chakra(shipped.two_stages(), tmp_path, "job", as_json=True):
        assert path.read_text() == (shipped.FOLDER / "two-stages" / path.name).read_text()
