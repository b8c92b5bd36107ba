"""The Mininet side: nodes, gateways, routers and switches as Mininet hosts, each in a network namespace of its own.

Interfaces, routes and queues in these namespaces are made in batches from the layout, and not by Mininet: its
``TCLink`` continues when tc fails, and shapes the sending host's port; ``fixLimits`` changes settings of the whole
machine; ``mn -c`` ends processes by name.

Mininet is one pure-Python package, which apt installs for the system's Python, and the C program ``mnexec``. PyPI has
only an old pre-release without ``mnexec``. On Python 3.12 its ``distutils`` comes from setuptools.
"""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from testbed.errors import CapabilityError
from testbed.processes.threads import EndingThreads

APT_PATH = Path("/usr/lib/python3/dist-packages/mininet")
APT_LINE = "sudo apt-get install --no-install-recommends mininet iproute2 iptables"


def import_mininet(module: str = "net") -> ModuleType:
    """Return the module ``mininet.<module>``. Raise ``CapabilityError`` if Mininet, mnexec or distutils is missing."""
    if importlib.util.find_spec("mininet") is None:
        _load_from_apt()
    if shutil.which("mnexec") is None:
        raise CapabilityError(f"Mininet's helper mnexec is missing. Cure: {APT_LINE}")
    try:
        # it provides distutils, which Mininet 2.3.0 imports, from Python 3.12 on
        importlib.import_module("setuptools")
    except ImportError as error:
        if sys.version_info >= (3, 12):
            raise CapabilityError("Mininet needs distutils. Cure: pip install setuptools") from error
    return importlib.import_module(f"mininet.{module}")


def _load_from_apt() -> None:
    """Load apt's package alone, without the other packages of the system's Python."""
    initial = APT_PATH / "__init__.py"
    spec = importlib.util.spec_from_file_location("mininet", initial, submodule_search_locations=[str(APT_PATH)])
    if not initial.exists() or spec is None or spec.loader is None:
        raise CapabilityError(f"Mininet is not installed. Cure: {APT_LINE}")
    package = importlib.util.module_from_spec(spec)
    sys.modules["mininet"] = package
    spec.loader.exec_module(package)


def start_hosts(names: Iterable[str], at_once: int) -> list[Any]:
    """Return a Mininet host for each name: a shell in a network namespace, which holds nothing but loopback yet.

    at_once  shells that start beside each other: Mininet waits for the prompt of each
    """
    import_mininet("log").setLogLevel("error")
    node = import_mininet("node")

    class Host(node.Node):  # type: ignore[misc,name-defined]
        @classmethod
        def setup(cls) -> None:
            """Skip Mininet's check for ``ifconfig``, which nothing here calls."""

    with EndingThreads(at_once) as threads:
        return list(threads.map(Host, names))
