"""The connection of a command to a Ray cluster: joins it, sends it the code of this testbed, and lists its machines.

A command joins from a machine of the cluster. Everything that it starts in the cluster ends with its connection, also
if the command is killed. Only ``import_ray`` imports Ray, so commands without a cluster do not need it.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from contextlib import chdir
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from testbed.errors import CapabilityError, ScenarioError

DEFAULT_PORT = 6379
_REACHABLE_S = 5.0
_ROOT = Path(__file__).parents[2]
_PACKAGES = ("testbed", "emulation", "topologies", "analysis", "scenarios")
_INSTALL = f"{sys.executable} -m pip install 'ray[default]'"  # what the extra [cluster] adds
_JOIN = "ray start --address={address} --num-cpus=0"


@dataclass(frozen=True, slots=True)
class ClusterMachine:
    """A machine that is in the cluster now, with the resources that its raylet offers.

    slots   custom resources, such as ``emulate``
    labels  labels given to ``ray start --labels``, such as ``dc``
    """

    id: str
    address: str
    cores: float = 0.0
    gpus: float = 0.0
    memory_bytes: float = 0.0
    slots: Mapping[str, float] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


def connect(address: str, working_directory: Path | None = None) -> None:
    """Join the cluster at ``HOST[:PORT]``, or this machine's cluster for ``auto``. A second call does nothing.

    Ray sends the code of this testbed, and the ``working_directory`` of tasks, to the machines.

    Raise ``ScenarioError`` if the address is malformed or the process has joined another cluster, and
    ``CapabilityError`` if Ray is missing, nothing answers at the address, or versions do not match.
    """
    ray = import_ray()
    place = address if address == "auto" else _reachable(address)
    if ray.is_initialized():
        _require_same(ray, place)
        return
    code: dict[str, Any] = {"py_modules": [str(_ROOT / package) for package in _PACKAGES]}
    os.environ["RAY_RUNTIME_ENV_IGNORE_GITIGNORE"] = "1"  # files that a scenario names are sent in any case
    if working_directory is not None:
        code["working_dir"] = str(working_directory)
    try:
        # Ray lets workers import from the working directory first, where a machine may have other code
        with TemporaryDirectory() as empty, chdir(empty):
            ray.init(
                address=place, log_to_driver=False, logging_level="ERROR", configure_logging=False, runtime_env=code
            )
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise _refused(address, error) from error


def machines() -> list[ClusterMachine]:
    """Return the machines that are in the cluster now, sorted by address."""
    found = [_machine(node) for node in import_ray().nodes() if node["Alive"]]
    return sorted(found, key=lambda machine: (machine.address, machine.id))


def import_ray() -> Any:
    """Return the module ``ray``. Raise ``CapabilityError`` if it is not installed."""
    try:
        import ray
    except ImportError as error:
        raise CapabilityError(f"--cluster needs Ray, which cannot be imported ({error}): {_INSTALL}") from error
    return ray


def _machine(node: Mapping[str, Any]) -> ClusterMachine:
    resources = dict(node["Resources"])
    cores, gpus, memory_bytes = (resources.pop(name, 0.0) for name in ("CPU", "GPU", "memory"))
    slots = {name: amount for name, amount in resources.items() if not name.startswith(("node:", "object_store"))}
    return ClusterMachine(
        node["NodeID"], node["NodeManagerAddress"], cores, gpus, memory_bytes, slots, dict(node.get("Labels") or {})
    )


def _reachable(address: str) -> str:
    """Return the address with its port. Raise if nothing answers there, for which Ray itself would wait for minutes."""
    if "://" in address:
        raise ScenarioError(
            f"--cluster {address}: give HOST:PORT, from a machine of the cluster; a machine joins as one that gets "
            f"no work by: {_JOIN.format(address='HOST:PORT')}"
        )
    host, _, port = address.partition(":")
    if not host or not (port or str(DEFAULT_PORT)).isdecimal():
        raise ScenarioError(f"--cluster {address}: expected HOST:PORT, e.g. 10.0.0.1:{DEFAULT_PORT}, or auto")
    try:
        with socket.create_connection((host, int(port or DEFAULT_PORT)), timeout=_REACHABLE_S):
            pass
    except (OSError, OverflowError) as error:
        raise CapabilityError(
            f"--cluster {address}: nothing answers there ({error}); start a cluster by `ray start --head "
            f"--port={port or DEFAULT_PORT}` on {host}, and give the address that it prints"
        ) from error
    return f"{host}:{port or DEFAULT_PORT}"


def _require_same(ray: Any, place: str) -> None:
    joined = ray.get_runtime_context().gcs_address
    host, _, port = place.partition(":")
    if place not in ("auto", joined) and f"{socket.gethostbyname(host)}:{port}" != joined:
        raise ScenarioError(f"--cluster {place}: this process has joined the cluster at {joined} already")


def _refused(address: str, error: Exception) -> CapabilityError:
    text = " ".join(str(error).split())
    if "ersion mismatch" in text:
        cure = "install the same versions of Python and Ray on all machines"
    elif address == "auto":
        cure = "no Ray runs on this machine: give the address of a cluster, or start one by `ray start --head`"
    else:
        cure = f"commands are given on a machine of the cluster; this one joins by: {_JOIN.format(address=address)}"
    return CapabilityError(f"--cluster {address}: cannot join ({text}); {cure}")
