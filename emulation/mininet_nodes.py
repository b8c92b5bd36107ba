"""The Mininet side: hosts, routers and switches as Mininet nodes, each in a network namespace of its own.

Three parts of Mininet are not used: ``fixLimits`` (it changes settings of the whole machine), ``TCLink`` (it continues
when tc fails, and shapes the sending host's port), ``mn -c`` (it ends processes by name). Interfaces are made in one
batch from the layout and then registered with Mininet, so that its command line and tools know the network.

Mininet is one pure-Python package, which apt installs for the system's Python, and the C program ``mnexec``. PyPI has
only an old pre-release without ``mnexec``. On Python 3.12 its ``distutils`` comes from setuptools.
"""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import sys
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from emulation.layout import Layout
from testbed.errors import CapabilityError

APT_PATH = Path("/usr/lib/python3/dist-packages/mininet")
APT_LINE = "sudo apt-get install --no-install-recommends mininet bridge-utils net-tools iproute2 iptables"


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


@cache
def _classes() -> SimpleNamespace:
    """Subclasses of Mininet's classes; made on first use, as Mininet may not be installed."""
    import_mininet("log").setLogLevel("error")
    net = import_mininet("net")
    node = import_mininet("node")
    link = import_mininet("link")
    base: SimpleNamespace = SimpleNamespace(
        Host=node.Host, Bridge=import_mininet("nodelib").LinuxBridge, Interface=link.Intf, Link=link.Link
    )

    class Host(base.Host):  # type: ignore[misc,name-defined]
        """A namespace with a shell; configured by the layout's batches."""

        @classmethod
        def setup(cls) -> None:
            pass

        def config(self, **_: Any) -> dict[str, Any]:
            return {}

    class Switch(base.Bridge):  # type: ignore[misc,name-defined]
        """A Linux bridge in its own namespace, made by the layout's batches."""

        def __init__(self, name: str, **parameters: Any) -> None:
            super().__init__(name, **(parameters | {"inNamespace": True}))

        @classmethod
        def setup(cls) -> None:
            pass

        def start(self, _controllers: Any) -> None:
            pass

    class Interface(base.Interface):  # type: ignore[misc,name-defined]
        """An interface that is configured elsewhere; knows its address."""

        def config(self, ip: str | None = None, **_: Any) -> dict[str, Any]:
            if ip:
                self.ip, self.prefixLen = ip.split("/")
            return {}

    class Cable(base.Link):  # type: ignore[misc,name-defined]
        """A veth pair that the layout's batch creates."""

        @classmethod
        def makeIntfPair(cls, *names: Any, **_: Any) -> tuple[Any, Any]:  # noqa: N802 - Mininet's name
            return names[0], names[1]

    return SimpleNamespace(Mininet=net.Mininet, Host=Host, Switch=Switch, Interface=Interface, Cable=Cable)


def build_network(layout: Layout) -> Any:
    """Return a ``mininet.net.Mininet`` with a node for every vertex and a link for every cable of the layout."""
    classes = _classes()
    classes.Mininet.inited = True  # fixLimits must not run
    net = classes.Mininet(
        topo=None,
        controller=None,
        host=classes.Host,
        switch=classes.Switch,
        link=classes.Cable,
        intf=classes.Interface,
        build=False,
        waitConnected=False,
    )
    for name in (*layout.hosts, *layout.gateways, *layout.routers):
        net.addHost(name, ip=None)
    for number, name in enumerate(layout.switches, 1):
        net.addSwitch(name, dpid=f"{number:016x}")  # Mininet can number only names that end in a digit
    for cable in layout.cables:
        a = cable.a
        b = cable.b
        net.addLink(
            net.get(a.vertex),
            net.get(b.vertex),
            intfName1=a.interface,
            intfName2=b.interface,
            params1={"ip": a.address},
            params2={"ip": b.address},
        )
    net.built = True
    return net
