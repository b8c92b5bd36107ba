"""The trials of ``emulation.probe``: runs as root of a temporary namespace and prints one JSON object."""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

_RULE = "*raw\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n-A PREROUTING -i lo -j NFQUEUE --queue-num 7\nCOMMIT\n"


def _works(*argv: str, text: str = "") -> bool:
    try:
        return subprocess.run(argv, input=text.encode(), capture_output=True, timeout=10, check=False).returncode == 0
    except OSError:
        return False


def _queue(*kind: str, rule: tuple[str, ...] = ()) -> bool:
    """Try a queueing discipline, and a rule of a filter at it."""
    works = _works("tc", "qdisc", "add", "dev", "lo", "root", "handle", "1:", *kind)
    if works and rule:
        works = _works("tc", "filter", "add", "dev", "lo", "parent", "1:", "protocol", "ip", "prio", "1", *rule)
    _works("tc", "qdisc", "del", "dev", "lo", "root")
    return works


def _try(function: Callable[[], Any]) -> bool:
    try:
        function()
    except OSError:
        return False
    return True


def _bind_queue() -> None:
    from emulation.shaping.delay_line import PacketQueue

    PacketQueue("/proc/self/ns/net", 7)


def _realtime() -> None:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def _congestion_controls() -> list[str]:
    """Return the congestion controls that a socket of this namespace may use."""
    known = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
    try:
        names = set(known.read_text().split()) if known.exists() else set()
    except OSError:
        names = set()
    with socket.socket() as probe:
        return sorted(
            name
            for name in names | {"reno", "cubic", "bbr"}
            if _try(lambda name=name: probe.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode()))  # type: ignore[misc]
        )


def main() -> None:
    os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    # a private /run, so that iptables' lock file can be made without root
    ctypes.CDLL(None).mount(b"tmpfs", b"/run", b"tmpfs", 0, None)
    flavours = [
        name for name in ("iptables-nft", "iptables-legacy", "iptables") if _works(f"{name}-restore", text=_RULE)
    ]
    found = {
        "veth": _works("ip", "link", "add", "probe1", "type", "veth", "peer", "name", "probe2"),
        "bridge": _works("ip", "link", "add", "probe3", "type", "bridge"),
        "htb": _queue("htb", "default", "1"),
        "u32": _queue("htb", "default", "1", rule=("u32", "match", "u8", "0x60", "0xe0", "at", "1", "flowid", "1:1")),
        "netem": _queue("netem", "delay", "1ms"),
        "iptables": flavours,
        "nfqueue": bool(flavours) and _try(_bind_queue),
        "icmp": _try(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close()),
        "realtime": _try(_realtime),
        "congestion_controls": _congestion_controls(),
    }
    print(json.dumps(found))  # noqa: T201 - the parent reads it


if __name__ == "__main__":
    main()
