"""Constants of a machine from the events of a real run: what was put in comes out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pandas as pd
import pytest

from analysis.calibrate import beside_s, calibrate, stream_byte_s
from analysis.load import StoredRun
from testbed.errors import ScenarioError
from testbed.plan.build import build_plan
from testbed.results.rundir import RunStatus
from testbed.scenario.load import loads
from tests.simulation.test_fold import SCENARIO

MESSAGE_S, BYTE_S, MEMORY_S, STEP_S, IDLE_SHARE = 150e-6, 2e-9, 4e-10, 0.004, 0.01
SEGMENT_S, CARRIED_S = 10e-6, 30e-6  # of each end's process, and of the machine between them
ROUNDS, ROUND_S, LOADED_S = 12, 0.5, 2.0
PUSHED, SEGMENTS = 50_100, 35  # bytes, and full segments that carry them
BEGIN_S, END_S = 2 * ROUND_S, ROUNDS * ROUND_S  # of what is looked at


def run_of(
    back_end: str = "local", servers: int = 3, rounds: int = ROUNDS, cpu: bool = True, wan: int = 0
) -> StoredRun:
    """Servers that are pushed 1, 2, 3, … messages a round, ``wan`` of them from elsewhere, by a worker that does one
    step a round and loads libraries at its first; and a scheduler that does nothing."""
    transfers, computes, samples = [], [], []
    for number in range(servers):
        name, count = f"a/server{number}", number + 1
        for round_ in range(rounds):
            end_s = (round_ + 1) * ROUND_S
            for message in range(count):
                tier = "wan" if message < wan else "lan"
                transfers.append((end_s, name, "a/worker0", "push", round_, 50_000, 100, tier))
            computes.append((end_s, name, "sum", round_, count * 50_000 * MEMORY_S))
        cost_s = count * (MESSAGE_S + PUSHED * BYTE_S + 50_000 * MEMORY_S)
        samples += cpu_of(name, cost_s + min(count, wan) * SEGMENTS * SEGMENT_S, rounds)
    computes += [((r + 1) * ROUND_S, "a/worker0", "step", r, 0.7 * STEP_S) for r in range(rounds)]
    pushes, far = sum(range(1, servers + 1)), sum(min(count, wan) for count in range(1, servers + 1))
    cost_s = pushes * (MESSAGE_S + PUSHED * BYTE_S) + far * SEGMENTS * SEGMENT_S + STEP_S
    worker = cpu_of("a/worker0", cost_s, rounds)
    samples += [(name, t, cpu_s + (LOADED_S if t > 0 else 0.0)) for name, t, cpu_s in worker]
    samples += cpu_of("a/scheduler", 0.0, rounds)
    tables: dict[str, Any] = {
        "processes": pd.DataFrame(samples if cpu else [], columns=["node", "t_s", "cpu_s"]),
        "rounds": pd.DataFrame([("a/worker0", (r + 1) * ROUND_S) for r in range(rounds)], columns=["node", "t_s"]),
        "computes": pd.DataFrame(computes, columns=["t_s", "node", "work", "round", "real_s"]),
        "transfers": pd.DataFrame(
            transfers,
            columns=["t_s", "target", "source", "message", "round", "payload_bytes", "header_bytes", "tier"],
        ),
        "machine": pd.DataFrame([], columns=["t_s", "busy_share"]),
        "measured": pd.DataFrame(
            [("a>b", "rate", 20e6, 19e6), ("a>b", "rtt", 0.04, 0.0412)],
            columns=["link", "what", "planned", "measured"],
        ),
    }  # fmt: skip
    manifest = {"machine": {"cores": 8, "usable_cores": 2}}
    return StoredRun(Path("run"), {"back_end": back_end}, manifest, None, None, RunStatus("done"), cast(Any, tables))


def cpu_of(node: str, round_s: float, rounds: int) -> list[tuple[str, float, float]]:
    """Twice a second, of a node that takes so much a round."""
    return [(node, r * ROUND_S, r * (round_s + IDLE_SHARE * ROUND_S)) for r in range(rounds + 1)]


def watched(run: StoredRun, share: float) -> StoredRun:
    """Its machine was busy with its nodes, packets, and ``share`` of a core with something else."""
    tables = dict(run.tables)
    inside = [table[(table["t_s"] > BEGIN_S)] for table in (tables["transfers"], tables["processes"])]
    segments = SEGMENTS * int((inside[0]["tier"] == "wan").sum())
    nodes_s = sum(
        float(each["cpu_s"].max()) - float(each[each["t_s"] == BEGIN_S]["cpu_s"].iloc[0])
        for _, each in tables["processes"].groupby("node")
    )
    busy = (nodes_s + segments * CARRIED_S + share * (END_S - BEGIN_S)) / (8 * (END_S - BEGIN_S))  # of all cores
    before_after = [(BEGIN_S / 2, 1.0), (END_S + 1, 1.0)]
    tables["machine"] = pd.DataFrame([*before_after, (3.0, busy), (5.0, busy)], columns=["t_s", "busy_share"])
    return replace(run, tables=cast(Any, tables))


def test_the_processors_of_several_machines_say_nothing_of_packets() -> None:
    """Their shares are of each one's cores, and nodes are on all of them."""
    run = watched(run_of("emulate", wan=2), 0.0)
    assert beside_s(run) == pytest.approx(CARRIED_S, rel=1e-2)
    assert beside_s(replace(run, plan={**run.plan, "cluster": {"address": "loopback"}})) is None


def test_what_was_put_in_comes_out() -> None:
    found = calibrate([run_of()], byte_s=BYTE_S)
    assert found.message_s == pytest.approx(MESSAGE_S, rel=1e-6)
    assert found.step_s == pytest.approx(STEP_S, rel=1e-6)  # and not what the mathematics alone took
    assert found.idle_share == pytest.approx(IDLE_SHARE, rel=1e-6)
    assert found.memory_s == pytest.approx(MEMORY_S, rel=1e-6)
    assert (found.cores, found.nodes, found.packet_s) == (2, 5, 0.0)
    assert found.residual < 1e-6
    assert found.links == {"a>b": {"rate_factor": 0.95, "more_rtt_s": 0.0012}}


def test_it_is_a_setting_of_a_scenario() -> None:
    found = calibrate([watched(run_of("emulate", wan=2), 0.0)], byte_s=BYTE_S)
    host = build_plan(loads(SCENARIO, overrides=[f"simulation.host={found.setting()}"])).simulation.host
    assert host is not None
    assert host.message_s == pytest.approx(MESSAGE_S, rel=1e-3)
    assert host.byte_s == pytest.approx(BYTE_S, rel=1e-3)
    assert host.step_s == pytest.approx(STEP_S, rel=1e-3)
    assert host.memory_s == pytest.approx(MEMORY_S, rel=1e-3)
    assert host.packet_s == pytest.approx(2 * SEGMENT_S + CARRIED_S, rel=1e-2)


def test_what_the_machine_does_beside_its_nodes_is_the_packets() -> None:
    """All of it; and as it does something else as well, the run counts in which that is the least."""
    one, other = (watched(run_of("emulate", wan=1), share) for share in (0.2, 0.1))
    segments = SEGMENTS * int((one.tables["transfers"]["t_s"] > BEGIN_S).sum() / 2)  # one of two pushes, on average
    for runs, share in (([one], 0.2), ([one, other], 0.1)):
        found = calibrate(runs, byte_s=BYTE_S)
        expected_s = 2 * SEGMENT_S + CARRIED_S + share * (END_S - BEGIN_S) / segments
        assert found.packet_s == pytest.approx(expected_s, rel=1e-6)
        assert (found.message_s, found.step_s) == pytest.approx((MESSAGE_S, STEP_S), rel=1e-6)


@pytest.mark.parametrize("run", [run_of("simulate"), run_of(servers=0), run_of(rounds=5), run_of(cpu=False)])
def test_runs_that_tell_too_little_are_refused(run: StoredRun) -> None:
    with pytest.raises(ScenarioError, match="three nodes"):
        calibrate([run], byte_s=BYTE_S)


def test_a_byte_costs_what_its_authentication_code_does() -> None:
    assert 1e-11 < stream_byte_s("aes-gmac", repeats=1) < stream_byte_s("hmac-sha256", repeats=1) < 1e-7
