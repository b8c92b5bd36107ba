"""The driver's view of nodes on several machines, with agents that are made up."""

from __future__ import annotations

import os
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.cluster.processes import AgentProcesses
from testbed.errors import NodeLost
from testbed.execution import cluster
from testbed.realtime.node_processes import ProcessEnd
from tests.faults.runs import plan_of


class Connections:
    """Those to agents that answer everything but ``refused``."""

    def __init__(self, refused: str = "") -> None:
        self.refused, self.asked, self.watched = refused, list[str](), set[int]()
        self.events: deque[Any] = deque()

    def watch(self, descriptor: int) -> None:
        assert descriptor not in self.watched, "as a selector"
        self.watched.add(descriptor)

    def unwatch(self, descriptor: int) -> None:
        self.watched.remove(descriptor)

    def ask_all(self, questions: dict[str, Any], limit_s: float = 0.0) -> dict[str, Any]:
        do = {question["do"] for question in questions.values()}.pop()
        self.asked.append(do)
        if do == self.refused:
            raise NodeLost("its machine is lost")
        return {name: {} for name in questions}


class Agents(list[Any]):
    def __init__(self, connections: Connections) -> None:
        placement = SimpleNamespace(ports={"a/worker0": 0}, data_center="a")
        super().__init__([SimpleNamespace(name="a/machine0", placement=placement, lost="", epoch_there_ns=0)])
        self.connections = connections

    def start_missing(self) -> None:
        pass


def begun(connections: Connections, wake: int) -> AgentProcesses:
    plan: Any = None
    agents: Any = Agents(connections)
    return AgentProcesses(plan, agents, 1, wake, None)


@pytest.mark.parametrize("refused", ["listen", "begin"])
def test_an_attempt_whose_machine_is_lost_while_it_begins_leaves_room_for_another(refused: str) -> None:
    """What had begun elsewhere is ended; and its descriptor is watched no more, as the next one has its number."""
    connections = Connections(refused)
    with pytest.raises(NodeLost):
        begun(connections, 7)
    assert connections.asked[-1] == "end" and not connections.watched
    connections.refused = ""
    with begun(connections, 7):
        assert connections.watched == {7}
    assert not connections.watched


def test_who_killed_a_node_is_told_by_its_machine() -> None:
    connections = Connections()
    wake = os.eventfd(0)
    processes = begun(connections, wake)
    (agent,) = processes._agents
    processes._running["a/worker0"] = agent
    ended = {"ended": "a/worker0", "code": -9, "report": {}, "killer": "the kernel, out of memory"}
    connections.events.append((agent, ended))
    assert list(processes.wait(0.0)) == [ProcessEnd("a/worker0", -9, {}, "the kernel, out of memory")]
    os.close(wake)


def test_machines_that_were_lost_are_not_measured_after_the_run() -> None:
    """A run that has gone on without one of them has ended well."""

    def machine(site: str, lost: str = "") -> SimpleNamespace:
        return SimpleNamespace(placement=SimpleNamespace(data_center=site, seen_from=lambda here: site), lost=lost)

    def measured(source: Any, target: Any, to: str) -> dict[str, Any]:
        if west in (source, target):
            raise NodeLost("lost just now")
        return {"rtt_s": 0.5}

    west, recorded = machine("west"), dict[str, Any]()
    driver: Any = SimpleNamespace(
        agents=[machine("hub", "lost"), machine("hub"), machine("east", "lost"), west], measured=measured,
        record=lambda kind, path, when, **found: recorded.update({path: found}),
    )  # fmt: skip
    cluster._measure(plan_of(on="cluster"), driver, "after")
    assert recorded == {"hub>west": {"failed": "lost just now"}, "west>hub": {"failed": "lost just now"}}
    driver.agents.append(machine("east"))
    cluster._measure(plan_of(on="cluster"), driver, "after")
    assert recorded["east>hub"] == recorded["hub>east"] == {"rtt_s": 0.5}
    with pytest.raises(NodeLost):
        cluster._measure(plan_of(on="cluster"), driver, "before")
