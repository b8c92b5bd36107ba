"""What codecs and optimizers cost in virtual time."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from testbed.codec.options import CODECS
from testbed.codec.table import make_codec
from testbed.compute_model import ComputeModel
from testbed.costs import COLUMNS, Cost, Costs, Row, read_costs, reference_costs, write_costs
from testbed.engine import coding
from testbed.engine.local_work import optimizer_work
from testbed.errors import ScenarioError
from testbed.plan.build import build_plan
from testbed.plan.model import Plan
from testbed.scenario.load import load
from testbed.simulation.node import CodingCore
from testbed.simulation.run import SimulationOptions, simulate
from testbed.training.optimizers import KeyOptimizer
from testbed.world import Role, Work, World
from tests.contract.tiny import STEP_TIME_S, WORKER, tiny_plan
from tests.engine.runs import MODELLED, THREE_SITES, run
from tests.for_each import for_each
from tests.simulation.star import read_events

SIZE = 1_000_000
SLOW = "device.codec_speed=0.05"
MODEL = ComputeModel(
    costs={"fp16 encode": Row(0.001, 2e-8, 1e-9), "fp16 decode": Row(0.0, 1e-8), "sgd step": Row(0.5, 0.0)}
)


def play(directory: Path, role: Role, codec_speed: float = 1.0, costs: Costs | None = None) -> Any:
    plan = tiny_plan([WORKER])
    node = replace(plan.nodes[0], device=replace(plan.nodes[0].device, codec_speed=codec_speed))
    options = SimulationOptions(compute=MODEL if costs is None else ComputeModel(costs=costs))
    (end,) = simulate(
        replace(plan, nodes=(node,)), lambda plan, node: role, directory, lambda e: None, options
    ).values()
    assert end.error is None, end.error
    return end.result


@for_each("speed", [1.0, 4.0])
def test_an_encoding_takes_what_its_row_says_of_call_elements_and_payload(tmp_path: Path, speed: float) -> None:
    async def role(world: World) -> float:
        begin_s = world.now()
        parts = await coding.encode(world, make_codec("fp16", {}), 0, torch.ones(SIZE), 3)
        assert parts[0].nbytes == 2 * SIZE
        return world.now() - begin_s

    assert play(tmp_path, role, speed) == pytest.approx((0.001 + 2e-8 * SIZE + 1e-9 * 2 * SIZE) / speed)
    (event,) = [event for event in read_events(tmp_path, WORKER) if event["kind"] == "compute"]
    assert (event["work"], event["round"]) == ("encode", 3)


def test_codecs_work_one_after_another_and_beside_the_device(tmp_path: Path) -> None:
    async def role(world: World) -> list[float]:
        async def encode(key: int) -> float:
            await coding.encode(world, codec, key, torch.ones(SIZE), 0)
            return world.now()

        async def step() -> float:
            await world.compute(Work("step"), lambda: None)
            return world.now()

        codec = make_codec("fp16", {})
        tasks = [world.spawn(one, "work") for one in (encode(0), encode(1), step())]
        return [await world.wait(task, "work") for task in tasks]

    assert play(tmp_path, role) == pytest.approx([0.023, 0.046, STEP_TIME_S])


def test_a_row_that_the_table_lacks_takes_what_the_codec_declares(tmp_path: Path) -> None:
    async def role(world: World) -> float:
        codec = make_codec("fp16", {})
        codec.cost_name, codec.encode_s_per_element = "mine", 7e-8  # type: ignore[misc]
        begin_s = world.now()
        await coding.encode(world, codec, 0, torch.ones(SIZE), 0)
        return world.now() - begin_s

    assert play(tmp_path, role) == pytest.approx(7e-8 * SIZE + MODEL.work_overhead_s)


def test_an_optimizer_step_takes_its_row_at_a_worker_as_at_a_server(tmp_path: Path) -> None:
    async def role(world: World) -> float:
        keys = [KeyOptimizer("sgd", {}, torch.ones(8)) for _ in range(3)]
        begin_s = world.now()
        await world.compute(optimizer_work(keys, 0), lambda: None)
        return world.now() - begin_s

    assert play(tmp_path, role) == pytest.approx(0.5)


@for_each(
    "paradigm",
    ["ps", "allreduce", "gossip", "{kind: gossip, algorithm: adpsgd}", "{kind: allreduce, overlap: buckets}"],
)
def test_and_as_at_a_worker_without_servers(tmp_path: Path, paradigm: str) -> None:
    job = ("training.model={kind: mlp, layers: 0}", "training.rounds=1", "training.evaluate_every=1")
    found = run(tmp_path, f"paradigm={paradigm}", *job, "optimizer=adam")
    steps = [event["modelled_s"] for event in found.of_kind("compute") if event["work"] == "optimizer"]
    row, elements = reference_costs()["adam step"], found.parameters("hub/worker0").numel()
    keys = len(found.results["hub/worker0"]) if paradigm == "ps" else 1  # a worker steps all keys at once
    assert sum(steps) == pytest.approx((keys * row.call_s + elements * row.element_s) * len(steps) / keys, abs=1e-5)


@for_each(("shared", "share"), [("replicated", 1.0), ("norms", 4 / 6 + 2 / 6 / 4), ("update", 1 / 4)])
def test_a_step_that_is_shared_takes_a_share_of_its_row(tmp_path: Path, shared: str, share: float) -> None:
    """LARS reads six values of each element, two of them for the norms; four workers have a quarter of them each."""
    work = (
        "paradigm=allreduce"
        if share == 1
        else f"paradigm={{kind: allreduce, optimizer_work: {shared}, shared_by: all}}"
    )
    found = run(tmp_path, *MODELLED, work, "order=fifo", "optimizer=lars", "training.rounds=1")
    steps = [event["modelled_s"] for event in found.of_kind("compute", "hub/worker0") if event["work"] == "optimizer"]
    row, elements = reference_costs()["lars with momentum step"], found.parameters("hub/worker0").numel()
    assert sum(steps) == pytest.approx(len(steps) * row.call_s + share * elements * row.element_s, rel=0.02)


@for_each(("row", "seconds"), [({}, [0.0, 0.0]), ({"copy": Row(0.25, 0.0, 1e-6)}, [0.75, 1.5])])
def test_copies_take_time_where_the_table_has_them_one_after_another(
    tmp_path: Path, row: dict[str, Row], seconds: list[float]
) -> None:
    async def role(world: World) -> list[float]:
        async def copy() -> float:
            await world.compute(Work("copy", size_bytes=500_000), lambda: None)
            return world.now()

        tasks = [world.spawn(copy(), "copy") for _ in range(2)]
        return [await world.wait(task, "copy") for task in tasks]

    assert play(tmp_path, role, costs=row) == pytest.approx(seconds)


def test_sums_take_what_the_table_says_of_their_bytes(tmp_path: Path) -> None:
    async def role(world: World) -> float:
        await world.compute(Work("sum", size_bytes=500_000), lambda: None)
        return world.now()

    assert play(tmp_path, role, costs={"sum": Row(0.25, 0.0, 1e-6)}) == pytest.approx(0.75)


@for_each("workers", [1, 2])
def test_one_contribution_is_its_own_sum(tmp_path: Path, workers: int) -> None:
    """Else a data centre with one worker would wait for its memory, in which nothing is added."""
    found = run(tmp_path, *MODELLED, f"data_centers[*].workers={workers}", "training.rounds=1", "simulation.fold=false")
    of_servers = [event for event in found.of_kind("compute") if event["work"] == "sum" and "/server" in event["node"]]
    longest_s = max(event["modelled_s"] for event in of_servers)
    assert (longest_s > 1e-5) == (workers > 1), longest_s


def test_what_sends_a_tensor_as_it_is_costs_nothing() -> None:
    for operation in ("encode", "decode", "encode_value", "decode_value"):
        assert make_codec("none", {}).cost(operation, SIZE) is None
    assert make_codec("twobit", {}).cost("encode_value", SIZE) is None
    assert make_codec("topk", {"pull": "dense"}).cost("decode_value", SIZE) is None
    small = make_codec("topk", {"bound": 100}).cost("encode", 99)
    assert small is None
    assert make_codec("topk", {"bound": 100}).cost("encode", 100) == Cost("topk encode", 4e-9)


def pulls_of(kind: str) -> tuple[str, ...]:
    return next((option.metadata["choices"] for option in fields(CODECS[kind]) if option.name == "pull"), ("",))


def test_the_reference_table_knows_everything_that_is_shipped() -> None:
    from testbed.training.options import OPTIMIZERS

    known = reference_costs()
    for kind in CODECS:
        for pull in pulls_of(kind):
            codec = make_codec(kind, {"pull": pull} if pull else {})
            for operation in ("encode", "decode", "encode_value", "decode_value"):
                cost = codec.cost(operation, SIZE)
                assert cost is None or cost.row in known, cost
    for kind in OPTIMIZERS:
        cost = KeyOptimizer(kind, {}, torch.ones(8)).cost
        assert cost is not None and cost.row in known


def test_two_codecs_of_equal_payload_are_not_predicted_equal(tmp_path: Path) -> None:
    """Bi-Sparse and a search by counting send the same bytes; encoding takes them different times."""
    ends = {}
    for kind, options in (("bisparse", ""), ("mstopk", "")):
        codec = f"codec={{tier1: none, tier2: {{kind: {kind}, ratio: 0.01{options}}}}}"
        found = run(tmp_path / kind, *MODELLED, codec, "training.rounds=2", "topology.links[*].rate=10 Gbit/s", SLOW)
        ends[kind] = max(event["t"] for event in found.of_kind("round"))
    assert ends["mstopk"] > ends["bisparse"] + 0.1


# ---- tables ---------------------------------------------------------------------------------------------------------


def lines(*rows: str) -> list[tuple[int, str]]:
    return list(enumerate([COLUMNS, *rows], start=1))


def test_a_table_is_read_as_it_was_written() -> None:
    table = {"a encode": Row(1e-5, 2e-9, 3e-10), "b step": Row(0.0, 1e-9)}
    written = write_costs(table, "about it").splitlines()
    assert written[0] == "# about it"
    read = read_costs(list(enumerate(written[1:], start=2)), "x.csv")
    assert {name: pytest.approx(row) for name, row in table.items()} == read


@for_each(
    ("rows", "problem"),
    [
        (("a encode,1,2",), "x.csv:2: expected a row's name and three numbers"),
        (("a encode,1,2,three",), "x.csv:2: expected a row's name and three numbers"),
        (("a encode,1,2,-3",), "x.csv:2: times must be at least 0"),
        (("a encode,nan,2,3",), "x.csv:2: times must be at least 0"),
        ((",1,2,3",), "x.csv:2: this row has no name"),
        (("a encode,1,2,3", "a encode,1,2,3"), "x.csv:3: 'a encode' is there twice"),
    ],
)
def test_errors_of_a_table_name_the_line(rows: tuple[str, ...], problem: str) -> None:
    with pytest.raises(ScenarioError, match=problem):
        read_costs(lines(*rows), "x.csv")


def test_a_table_without_its_header_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"x\.csv: expected the header"):
        read_costs([(1, "a,b")], "x.csv")


def test_a_scenario_may_bring_its_own_table(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text(f"# mine\n{COLUMNS}\nfp16 encode,5,6,0\n", encoding="utf-8")
    text = THREE_SITES.read_text(encoding="utf-8")
    (tmp_path / "scenario.yaml").write_text(f"{text}\nsimulation: {{costs: {{file: mine.csv}}}}\n", encoding="utf-8")
    plan = build_plan(load(tmp_path / "scenario.yaml", ["device.codec_speed=2"]), "simulate")
    assert plan.simulation.costs == {"fp16 encode": pytest.approx(Row(5e-6, 6e-9))}
    assert {node.device.codec_speed for node in plan.nodes if node.role != "scheduler"} == {2.0}
    model = ComputeModel().of_plan(plan)
    assert model.costs is not None and model.costs["fp16 encode"] == pytest.approx(Row(5e-6, 6e-9))
    assert model.costs["adam step"] == reference_costs()["adam step"]


def test_rows_that_nothing_looks_up_are_told(tmp_path: Path) -> None:
    known = ("fp16 encode", "cuda none decode", "rows encode_value", "sum", "adam step", "sgd with momentum step")
    unknown = ("fp16 encod", "fp61 encode", "copy copy")
    rows = "".join(f"{row},5,6,0\n" for row in (*known, *unknown, "Sign encode"))  # the last may be of another run
    (tmp_path / "mine.csv").write_text(f"{COLUMNS}\n{rows}", encoding="utf-8")
    text = THREE_SITES.read_text(encoding="utf-8")
    (tmp_path / "scenario.yaml").write_text(f"{text}\nsimulation: {{costs: {{file: mine.csv}}}}\n", encoding="utf-8")
    warnings = build_plan(load(tmp_path / "scenario.yaml"), "simulate").warnings
    told = [line for line in warnings if line.startswith("simulation.costs: row")]
    assert [line.split("'")[1] for line in told] == list(unknown)
    assert told[1].endswith("has no effect (did you mean 'fp16'?)")


def with_table(tmp_path: Path, rows: str, *changes: str) -> Plan:
    """Return the Plan of three sites with a table of costs of its own; an empty one: without."""
    (tmp_path / "mine.csv").write_text(f"{COLUMNS}\n{rows}", encoding="utf-8")
    text = THREE_SITES.read_text(encoding="utf-8")
    text += "\nsimulation: {costs: {file: mine.csv}}\n" if rows else ""
    (tmp_path / "scenario.yaml").write_text(text, encoding="utf-8")
    return build_plan(load(tmp_path / "scenario.yaml", [*changes], on="simulate"))


def test_work_that_a_table_of_another_machine_lacks_is_told(tmp_path: Path) -> None:
    def told(rows: str, *changes: str) -> list[str]:
        warnings = with_table(tmp_path, rows, *changes).warnings
        return [line.split("'")[1] for line in warnings if line.startswith("simulation.costs: has no row")]

    own = "sum,1,0,0\nadam step,1,1,0\nfp16 encode,1,1,0\n"
    assert told("", "optimizer=adam", "codec=fp16") == [] == told(own, "optimizer=adam", "codec=fp16")
    assert told(own, "optimizer={kind: sgd, momentum: 0.9}", "codec=topk") == ["sgd with momentum", "topk"]
    outer = ("sync={kind: diloco, h: 2}", "optimizer={kind: adam, at: worker}")
    assert told(own, *outer) == ["nesterov with momentum"]


def test_a_table_says_what_messages_take(tmp_path: Path) -> None:
    """Of a LAN that is faster than a core reads, nodes take more with a row that says so, and are told without one."""
    fast = "topology.lan.rate=100 Gbit/s"
    plain = with_table(tmp_path, "", fast)
    assert [line for line in plain.warnings if "a node takes 25.6 Gbit/s" in line]
    told = with_table(tmp_path, "message,2,0,0.05\n", fast)
    assert not [line for line in told.warnings if "a node takes" in line]
    model = ComputeModel().of_plan(told)
    assert (model.message_cost_s, model.message_bytes_per_s) == (pytest.approx(2e-6), pytest.approx(2e10))
    assert ComputeModel().of_plan(plain).message_bytes_per_s == 3.2e9


@for_each("busy_s", [0.0, 10.5])
@for_each("interval_s", [0.0, 0.1, 2.0])
def test_contributions_of_folded_workers_are_decoded_one_by_one(busy_s: float, interval_s: float) -> None:
    together, apart = CodingCore(busy_until_s=busy_s), CodingCore(busy_until_s=busy_s)
    for number in range(1, 8):
        apart.take(10.0 + number * interval_s, 0.5)
    assert together.take_copies(10.0, interval_s, 7, 0.5) == pytest.approx(apart.busy_until_s)


def test_a_sum_that_comes_during_a_step_does_not_wait_for_the_next_steps(tmp_path: Path) -> None:
    """The device works in the order of the calls, and the second step is called for when the first has ended."""
    done: list[tuple[str, float]] = []
    sum_s, size_bytes = 0.1 * STEP_TIME_S, round(0.1 * STEP_TIME_S * MODEL.memory_bytes_per_s)

    async def role(world: World) -> list[tuple[str, float]]:
        async def sum_after(delay_s: float) -> None:
            await world.sleep(delay_s)
            await world.compute(Work("sum", 0, size_bytes=size_bytes), lambda: None)
            done.append(("sum", world.now() - begin_s))

        begin_s = world.now()
        sums = [world.spawn(sum_after(share * STEP_TIME_S), "a sum") for share in (0.5, 0.6)]
        for _ in range(3):
            await world.compute(Work("step", 0), lambda: None)
            done.append(("step", world.now() - begin_s))
        for each in sums:
            await world.wait(each, "the sums")
        return done

    found = play(tmp_path, role)
    assert [kind for kind, _ in found] == ["step", "sum", "sum", "step", "step"]
    ends_s = [at_s for kind, at_s in found if kind == "step"]
    assert ends_s == pytest.approx([STEP_TIME_S, 2 * (STEP_TIME_S + sum_s), 3 * STEP_TIME_S + 2 * sum_s], rel=0.01)
