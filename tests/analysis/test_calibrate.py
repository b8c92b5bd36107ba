"""Constants of a machine from the events of a real run: what was put in comes out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pandas as pd
import pytest

from analysis.calibrate import calibrate, stream_byte_s
from analysis.load import Run
from testbed.errors import ScenarioError
from testbed.plan.build import build_plan
from testbed.results.rundir import Status
from testbed.scenario.load import loads
from tests.simulation.test_fold import SCENARIO

MESSAGE_S, BYTE_S, MEMORY_S, FIXED_S = 150e-6, 2e-9, 4e-10, 0.03


def run_of(back_end: str = "local", servers: int = 3, cpu: bool = True) -> Run:
    """Servers that were pushed 4, 8, 12, … messages, a scheduler without any, and a worker whose libraries took 2 s."""
    transfers, computes, finals = [], [], []
    for number in range(servers):
        name, count = f"a/server{number}", 4 * (number + 1)
        for message in range(count):
            transfers.append((name, "a/worker0", "push", message // 2, 50_000, 100))
            computes.append((name, "sum", message // 2, 50_000 * MEMORY_S))
        size = count * 50_100
        finals.append((name, FIXED_S + count * MESSAGE_S + size * BYTE_S + count * 50_000 * MEMORY_S))
    finals += [("a/scheduler", FIXED_S), ("a/worker0", 2.0)]
    computes += [("a/worker0", "step", r, 0.004) for r in range(9)]
    tables: dict[str, Any] = {
        "finals": pd.DataFrame(finals, columns=["node", "cpu_s"]),
        "computes": pd.DataFrame(computes, columns=["node", "work", "round", "real_s"]),
        "transfers": pd.DataFrame(
            transfers, columns=["target", "source", "message", "round", "payload_bytes", "header_bytes"]
        ),
        "measured": pd.DataFrame(
            [("a>b", "rate", 20e6, 19e6), ("a>b", "rtt", 0.04, 0.0412)],
            columns=["link", "what", "planned", "measured"],
        ),
    }  # fmt: skip
    if not cpu:
        tables["finals"] = tables["finals"].assign(cpu_s=float("nan"))
    manifest = {"machine": {"cores": 8, "usable_cores": 2}}
    return Run(Path("run"), {"back_end": back_end}, manifest, None, None, Status("done"), cast(Any, tables))


def test_what_was_put_in_comes_out() -> None:
    found = calibrate([run_of()], byte_s=BYTE_S)
    assert found.message_s == pytest.approx(MESSAGE_S, rel=1e-6)
    assert found.memory_s == pytest.approx(MEMORY_S, rel=1e-6)
    assert (found.cores, found.step_s, found.nodes) == (2, 0.004, 4)
    assert found.residual < 1e-6
    assert found.links == {"a>b": {"rate_factor": 0.95, "more_rtt_s": 0.0012}}


def test_it_is_a_setting_of_a_scenario() -> None:
    found = calibrate([run_of()], byte_s=BYTE_S)
    host = build_plan(loads(SCENARIO, overrides=[f"simulation.host={found.setting()}"])).simulation.host
    assert host is not None
    assert host.message_s == pytest.approx(MESSAGE_S, rel=1e-3)
    assert host.byte_s == pytest.approx(BYTE_S, rel=1e-3)
    assert host.step_s == pytest.approx(0.004, rel=1e-3)
    assert host.memory_s == pytest.approx(MEMORY_S, rel=1e-3)


def test_what_the_machine_does_beyond_its_nodes_is_the_packets() -> None:
    """Two cores half busy for 10 s, less what nodes do by the other constants, over the segments on the WAN."""
    run = run_of("emulate")
    tables = dict(run.tables)
    tables["rounds"] = pd.DataFrame([(0.0, 5.0), (5.0, 10.0)], columns=["t0_s", "t_s"])
    tables["machine"] = pd.DataFrame([(2.0, 0.4), (6.0, 0.6), (20.0, 1.0)], columns=["t_s", "busy_share"])
    transfers = tables["transfers"].assign(tier="lan", t_s=1.0)
    wan = transfers.head(8).assign(tier="wan")  # 50 100 bytes: 35 segments each
    tables["transfers"] = pd.concat([transfers, wan])
    tables["computes"] = tables["computes"].assign(t_s=1.0)
    count = len(tables["transfers"])
    nodes_s = 2 * count * (MESSAGE_S + 50_100 * BYTE_S) + float(tables["computes"]["real_s"].sum())
    again = replace(run, tables=cast(Any, tables))
    with_wan = calibrate([run_of(), again], byte_s=BYTE_S)
    assert with_wan.packet_s == pytest.approx((10.0 - nodes_s) / (8 * 35), rel=0.02)
    quieter = tables | {"machine": tables["machine"].assign(busy_share=[0.3, 0.5, 1.0])}
    both = calibrate([again, replace(run, tables=cast(Any, quieter))], byte_s=BYTE_S)
    assert both.packet_s == pytest.approx((8.0 - nodes_s) / (8 * 35), rel=0.02)  # the least: work that always is there
    host = build_plan(loads(SCENARIO, overrides=[f"simulation.host={with_wan.setting()}"])).simulation.host
    assert host is not None and host.packet_s == pytest.approx(with_wan.packet_s, rel=1e-2)


@pytest.mark.parametrize("run", [run_of("simulate"), run_of(servers=1), run_of(cpu=False)])
def test_runs_that_tell_too_little_are_refused(run: Run) -> None:
    with pytest.raises(ScenarioError, match="three nodes"):
        calibrate([run], byte_s=BYTE_S)


def test_a_byte_costs_between_a_tenth_and_a_hundred_nanoseconds() -> None:
    assert 1e-10 < stream_byte_s(repeats=1) < 1e-7
