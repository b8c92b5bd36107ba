"""Detects this machine's capabilities by trying them in a temporary namespace, with a cure for each missing one.

The kernel's configuration would not suffice: a module may not be installed, or a container may forbid its use. The
probe takes less than a second and leaves nothing behind.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from emulation.helpers import ROOT, own_packages
from emulation.mininet_nodes import APT_LINE, import_mininet
from emulation.sandbox import needs_user_namespace
from emulation.shaping.link_spec import DelayMethod
from testbed.errors import CapabilityError

_DEADLINE_S = 20.0


@dataclass(frozen=True, slots=True)
class Gap:
    """A missing capability: what it is for and how to get it. ``needed``: emulation is impossible without it."""

    name: str
    why: str
    cure: str
    needed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """The result of ``probe``. Goes into every run's manifest as ``to_dict()``."""

    kernel: str
    root: bool
    namespaces: bool
    rootless: bool
    veth: bool
    bridge: bool
    htb: bool
    u32: bool
    netem: bool
    nfqueue: bool
    icmp: bool
    iptables: tuple[str, ...]
    realtime: bool
    mininet: str
    mnexec: bool
    congestion_controls: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-ready values, for the manifest."""
        return asdict(self)

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Capabilities | None:
        """Return the capabilities from the output of ``to_dict``, ignoring other entries; None if some are missing."""
        try:
            found = {each.name: told[each.name] for each in fields(cls)}
        except KeyError:
            return None
        lists = ("iptables", "congestion_controls")
        return cls(**{**found, **{name: tuple(found[name]) for name in lists}})

    def delay_method(self) -> DelayMethod:
        """Return ``netem`` if the kernel has it, else ``nfqueue``. Raise ``CapabilityError`` without either."""
        self.require_emulation()
        return "netem" if self.netem else "nfqueue"

    def iptables_restore(self) -> str:
        """Return the command that loads packet filter rules here."""
        return f"{self.iptables[0]}-restore"

    def gaps(self) -> list[Gap]:
        """Return the missing capabilities; those that are needed come first."""
        return sorted((gap for present, gap in _gap_table(self) if not present), key=lambda gap: not gap.needed)

    def require_emulation(self) -> None:
        """Raise ``CapabilityError``, which lists missing capabilities with their cures, if a needed one is missing."""
        missing = [gap for gap in self.gaps() if gap.needed]
        if missing:
            lines = [f"  {gap.name}: {gap.why}. Cure: {gap.cure}" for gap in missing]
            raise CapabilityError("\n".join(["this machine cannot emulate networks yet:", *lines]))


def _gap_table(found: Capabilities) -> list[tuple[bool, Gap]]:
    delay_cure = f"{module_cure('sch_netem')}; or sudo apt-get install --no-install-recommends iproute2 iptables"
    rows = [
        (found.namespaces, "namespaces", "every emulated node has one", _namespaces_cure(), True),
        (bool(found.mininet), "Mininet", "the emulated hosts are Mininet's", APT_LINE, True),
        (found.mnexec, "mnexec", "Mininet starts its hosts with it", APT_LINE, True),
        (found.veth, "veth", "it makes the cables between nodes", module_cure("veth"), True),
        (found.bridge, "bridge", "it is the switch of each data centre", module_cure("bridge"), True),
        (found.htb, "sch_htb", "it makes link rates", module_cure("sch_htb"), True),
        (found.netem or found.nfqueue, "sch_netem or NFQUEUE", "one makes delays and losses", delay_cure, True),
        (found.icmp, "ICMP", "round trips are measured with it", "in a container: --cap-add NET_RAW", True),
        (found.netem, "sch_netem", _NETEM_WHY, module_cure("sch_netem"), False),
        (found.realtime, "SCHED_FIFO", "without it delays are up to 5 ms late on busy cores", _realtime_cure(), False),
        (found.u32, "cls_u32", "it separates DGT's channels at bottlenecks", module_cure("cls_u32"), False),
    ]
    known = rows if found.namespaces else rows[:3]  # the others are tried in namespaces
    return [(present, Gap(name, why, cure, needed)) for present, name, why, cure, needed in known]


def _realtime_cure() -> str:
    if os.geteuid() != 0:
        return "run as root"
    return "in a container: --cap-add SYS_NICE, and --cpu-rt-runtime=950000 where cgroups limit real-time priority"


def module_cure(name: str) -> str:
    """Return how to get a kernel module."""
    return f"sudo modprobe {name}; in WSL2 or Docker Desktop a kernel that has it, or a virtual machine (Vagrantfile)"


_FORBIDDING = {  # settings of kernels that keep users from making namespaces, with a value that lets them
    "kernel.unprivileged_userns_clone": ("0", "1"),
    "kernel.apparmor_restrict_unprivileged_userns": ("1", "0"),
    "user.max_user_namespaces": ("0", "10000"),
}
_PROC_SYS = Path("/proc/sys")


def _namespaces_cure() -> str:
    """Return the cure for a missing permission to make namespaces, from what forbids it here, as far as known."""
    if shutil.which("unshare") is None:
        return "sudo apt-get install util-linux"
    settings = [f"{name}={good}" for name, (bad, good) in _FORBIDDING.items() if _setting(name) == bad]
    cures = ["run as root (sudo)"] if os.geteuid() != 0 else []
    cures += [f"allow user namespaces: sudo sysctl {' '.join(settings)}"] if settings else []
    return "; or ".join([*cures, "in a container: start it with --privileged (docs/how-to/platforms.md)"])


def _setting(name: str) -> str:
    try:
        return _PROC_SYS.joinpath(*name.split(".")).read_text().strip()
    except OSError:  # other kernels have others
        return ""


_NETEM_WHY = (
    "without it a helper process makes delays and losses by NFQUEUE,"
    " with a lower ceiling (about 0.25 Gbit/s in all on two cores)"
)


def probe() -> Capabilities:
    """Try all capabilities. A missing one is a result and no error."""
    with closing(Probing()) as probing:
        return probing.result()


class Probing:
    """A ``probe`` in progress, which takes a third of a second."""

    def __init__(self) -> None:
        self._rootless = needs_user_namespace()
        self._child = _started(["--map-root-user"] if self._rootless else [])
        self._found: Capabilities | None = None

    def close(self) -> None:
        """End it, if it has not ended."""
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
            self._child = None

    def result(self) -> Capabilities:
        """Wait for the end of the probe, and return the capabilities."""
        if self._found is None:
            self._found = _described(_told(self._child) or {}, self._rootless)
        return self._found


def _described(tried: dict[str, Any], rootless: bool) -> Capabilities:
    return Capabilities(
        kernel=platform.release(),
        root=os.geteuid() == 0,
        namespaces=bool(tried),
        rootless=rootless and bool(tried),
        **{name: bool(tried.get(name)) for name in _TRIED},
        iptables=tuple(tried.get("iptables", ())),
        mininet=_mininet_version(),
        mnexec=shutil.which("mnexec") is not None,
        congestion_controls=tuple(tried.get("congestion_controls", ())),
    )


_TRIED = ("veth", "bridge", "htb", "u32", "netem", "nfqueue", "icmp", "realtime")


def _started(user: list[str]) -> subprocess.Popen[str] | None:
    """Start ``emulation.probe_child`` in namespaces of its own; return None if that cannot be started."""
    namespaces = ["unshare", *user, "--fork", "--pid", "--mount", "--net", "--mount-proc", "--kill-child"]
    child = [sys.executable, "-S", "-m", "emulation.probe_child"]
    try:
        return subprocess.Popen(
            [*namespaces, *child],
            cwd=ROOT,
            env=own_packages(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
    except OSError:
        return None


def _told(child: subprocess.Popen[str] | None) -> dict[str, Any] | None:
    """Return the result of the child; None if its namespaces cannot be made, or its trials do not end."""
    if child is None:
        return None
    try:
        told, _ = child.communicate(timeout=_DEADLINE_S)
    except subprocess.TimeoutExpired:
        return None
    result: dict[str, Any] | None = json.loads(told) if child.returncode == 0 and told else None
    return result


def _mininet_version() -> str:
    try:
        return str(import_mininet("net").VERSION)
    except (CapabilityError, ImportError):
        return ""
