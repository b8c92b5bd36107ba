"""Kernel settings of a namespace: TCP there follows the plan, and inherits nothing from the machine."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from testbed.errors import CapabilityError
from testbed.plan.model import NetworkPlan
from testbed.settings.run import Transport
from testbed.settings.series import Series

MIN_BUFFER_BYTES = 8 << 20
MAX_BUFFER_BYTES = 512 << 20
_BRIDGE_FILTERS = ("arptables", "ip6tables", "iptables")


def buffer_bytes(network: NetworkPlan) -> int:
    """A TCP buffer limit that caps no flow: 4 (largest rate x longest round-trip time + largest queue), in bytes.

    Linux counts a packet's bookkeeping as well, about as much again as its data; the other factor of two is slack.
    """
    if not network.links:
        return MIN_BUFFER_BYTES
    delays_s = {link.name: _most(link.delay_s, link.delay_trace) for link in network.links}
    longest_s = 2 * max(sum(delays_s[name] for name in route) for route in network.routes.values())
    fastest_bps = max(_most(link.rate_bps, link.rate_trace) for link in network.links)
    product = fastest_bps / 8 * longest_s + max(link.queue_bytes for link in network.links)
    return int(min(max(4 * product, MIN_BUFFER_BYTES), MAX_BUFFER_BYTES))


def _most(usual: float, trace: Series | None) -> float:
    """Return the largest value that a link has at any time."""
    return max((usual, *(trace.values if trace else ())))


def settings(transport: Transport, network: NetworkPlan, *, router: bool) -> dict[str, str]:
    """Return the values of all sysctls by name; they are equal in all namespaces, except for forwarding."""
    largest = buffer_bytes(network)
    receive = int((transport.receive_buffer_bytes or 0) / window_share(os.uname().release)) or largest
    send = transport.send_buffer_bytes or largest  # data count once; one large packet may exceed it
    return {
        "net.ipv4.ip_forward": "1" if router else "0",
        "net.ipv6.conf.all.disable_ipv6": "1",  # IPv6 chatter would bypass the delay line
        "net.ipv6.conf.default.disable_ipv6": "1",
        "net.ipv4.conf.all.rp_filter": "0",
        "net.ipv4.conf.default.rp_filter": "0",
        "net.ipv4.conf.all.send_redirects": "0",
        "net.ipv4.tcp_rmem": f"4096 {min(131_072, receive)} {receive}",
        "net.ipv4.tcp_wmem": f"4096 {min(65_536, send)} {send}",
        "net.ipv4.tcp_slow_start_after_idle": str(int(transport.slow_start_after_idle)),
        "net.ipv4.tcp_no_metrics_save": "1",  # a connection must not start with a former one's window
    }


def window_share(kernel: str) -> float:
    """Return the share of a receive buffer that TCP announces as its window, for full packets without receive offload.

    Linux 6.6 and later: data over memory of a packet, 1448 of 2304 bytes in 256ths; before, half of it.
    """
    major, minor = (int(number) for number in kernel.split("-", maxsplit=1)[0].split(".")[:2])
    return (1448 * 256 // 2304) / 256 if (major, minor) >= (6, 6) else 0.5


def apply_settings(transport: Transport, network: NetworkPlan, *, router: bool) -> str:
    """Set all sysctls in the caller's namespace.

    Returns the options that routes must have instead: the initial window, and the congestion control if the kernel
    refuses it as a namespace's default, as it does unless it is the kernel's default or in
    ``tcp_allowed_congestion_control``. Raise ``CapabilityError`` if the kernel does not have it.
    """
    for name, value in settings(transport, network, router=router).items():
        with suppress(FileNotFoundError):  # a kernel without IPv6
            _sysctl(name).write_text(value)
    for table in _BRIDGE_FILTERS:
        with suppress(FileNotFoundError):  # present only with br_netfilter
            _sysctl(f"net.bridge.bridge-nf-call-{table}").write_text("0")
    refused = _set_congestion_control(transport.congestion_control)
    options = [f"congctl {refused}"] if refused else []
    if transport.initial_window_packets is not None:
        window = transport.initial_window_packets
        options.append(f"initcwnd {window} initrwnd {max(window, 10)}")
    return " ".join(options)


def _sysctl(name: str) -> Path:
    """Return the file of a sysctl such as 'net.ipv4.ip_forward', of the caller's namespace."""
    return Path("/proc/sys", *name.split("."))


def _set_congestion_control(name: str) -> str | None:
    try:
        _sysctl("net.ipv4.tcp_congestion_control").write_text(name)
    except PermissionError:
        return name
    except FileNotFoundError as error:
        known = _sysctl("net.ipv4.tcp_allowed_congestion_control").read_text().strip()
        raise CapabilityError(
            f"this kernel has no congestion control '{name}' (it has {known}). Cure: sudo modprobe tcp_{name}"
        ) from error
    return None
