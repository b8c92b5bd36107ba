"""Joining a cluster: what is no address, what does not answer, and what is not installed, each with its cure."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import testbed
from testbed.cluster import connection
from testbed.errors import CapabilityError, ScenarioError, TestbedError
from tests.cli.forked import command

NODE = {
    "NodeID": "b1", "Alive": True, "NodeManagerAddress": "10.0.0.2", "Labels": {"dc": "tokyo"},
    "Resources": {"CPU": 4.0, "GPU": 1.0, "memory": 8e9, "object_store_memory": 1e9, "node:10.0.0.2": 1.0,
                  "emulate": 1},
}  # fmt: skip


class FakeRay:
    """Ray as far as the connection uses it; ``fails`` is raised by ``init``."""

    def __init__(self, nodes: Any = (), fails: Exception | None = None, joined: str = "") -> None:
        self._nodes, self._fails, self._joined = nodes, fails, joined
        self.options: dict[str, Any] = {}

    def is_initialized(self) -> bool:
        return bool(self._joined)

    def init(self, **options: Any) -> None:
        self.options = options
        self.cwd = list(Path.cwd().iterdir())
        if self._fails:
            raise self._fails

    def nodes(self) -> Any:
        return self._nodes

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(gcs_address=self._joined)


@pytest.fixture
def listening() -> Any:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def use(monkeypatch: pytest.MonkeyPatch, ray: Any) -> Any:
    monkeypatch.setitem(sys.modules, "ray", ray)
    return ray


def test_without_ray_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, None)
    with pytest.raises(CapabilityError, match=r"needs Ray.*pip install 'ray\[default\]'"):
        connection.connect("10.0.0.1:6379")
    ended = command(["sweep", "quickstart", "--on", "simulate", "--set", "codec=none", "--cluster", "auto"])
    assert ended.returncode == 3 and f"{sys.executable} -m pip install 'ray[default]'" in ended.stderr


@pytest.mark.parametrize(
    ("address", "kind", "told"),
    [
        ("ray://10.0.0.1:10001", ScenarioError, "from a machine of the cluster.*ray start --address=HOST:PORT"),
        ("10.0.0.1:six", ScenarioError, "expected HOST:PORT, e.g. 10.0.0.1:6379"),
        (":6379", ScenarioError, "expected HOST:PORT"),
        ("127.0.0.1:1", CapabilityError, "nothing answers there.*ray start --head --port=1` on 127.0.0.1"),
        ("127.0.0.1:99999", CapabilityError, "nothing answers there"),
    ],
)
def test_addresses_that_cannot_be(
    monkeypatch: pytest.MonkeyPatch, address: str, kind: type[TestbedError], told: str
) -> None:
    ray = use(monkeypatch, FakeRay())
    with pytest.raises(kind, match=told):
        connection.connect(address)
    assert not ray.options, "Ray has waited for it"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RuntimeError("Version mismatch: The cluster was started with:\n Ray: 2.60.0"), "same versions of Python and"),
        (ConnectionError("Failed to connect"), "this one joins by: ray start --address=127.0.0.1"),
    ],
)
def test_what_ray_refuses(monkeypatch: pytest.MonkeyPatch, listening: str, error: Exception, told: str) -> None:
    use(monkeypatch, FakeRay(fails=error))
    with pytest.raises(CapabilityError, match=told):
        connection.connect(listening)


def test_it_is_joined_once_with_the_code(monkeypatch: pytest.MonkeyPatch, listening: str) -> None:
    ray = use(monkeypatch, FakeRay())
    connection.connect(listening)
    assert ray.options["address"] == listening
    assert ray.cwd == [] and list(Path.cwd().iterdir()), "machines import what lies in the working directory"
    assert [path.rpartition("/")[2] for path in ray.options["runtime_env"]["py_modules"]] == [
        "testbed", "emulation", "topologies", "analysis", "scenarios"
    ]  # fmt: skip
    ray = use(monkeypatch, FakeRay(joined=listening))
    connection.connect(listening)
    connection.connect("auto")
    assert not ray.options
    for other in ("10.9.9.9:6379", "127.0.0.1:1"):
        use(monkeypatch, FakeRay(joined=other))
        with pytest.raises(ScenarioError, match=rf"has joined the cluster at {other} already"):
            connection.connect(listening)


def test_machines_are_those_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FakeRay([NODE, {**NODE, "NodeID": "b2", "Alive": False}]))
    (machine,) = connection.machines()
    assert (machine.id, machine.address, machine.cores, machine.gpus) == ("b1", "10.0.0.2", 4.0, 1.0)
    assert machine.slots == {"emulate": 1} and machine.labels == {"dc": "tokyo"} and machine.memory_bytes == 8e9


@pytest.mark.slow  # 5 s
def test_from_python_the_errors_are_those_of_the_command(tmp_path: Path) -> None:
    with pytest.raises(CapabilityError, match=r"^--cluster (127\.0\.0\.1:1: nothing answers there|needs Ray)"):
        testbed.sweep("quickstart", {"codec": ["none"]}, on="simulate", out=tmp_path / "out", cluster="127.0.0.1:1")
