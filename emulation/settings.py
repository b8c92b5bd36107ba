"""Kernel settings of a namespace: what TCP does there is set from the Plan, never inherited from the machine."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from emulation.namespaces import get_sysctl, set_sysctl
from emulation.shaping.base import LinkSpec
from testbed.errors import CapabilityError
from testbed.plan.model import TransportPlan

MIN_BUFFER_BYTES = 8 << 20
MAX_BUFFER_BYTES = 512 << 20
_BRIDGE_FILTERS = ("arptables", "ip6tables", "iptables")


def buffer_bytes(links: Sequence[LinkSpec]) -> int:
    """A TCP buffer limit that never caps a flow: four times the largest rate times the longest round trip, plus queue.

    Linux counts a packet's bookkeeping as well, about as much again as its data.
    """
    if not links:
        return MIN_BUFFER_BYTES
    longest_s = 2 * sum(sorted((link.delay_s for link in links), reverse=True)[:3])
    product = max(link.rate_bps for link in links) / 8 * longest_s + max(link.queue_bytes for link in links)
    return int(min(max(4 * product, MIN_BUFFER_BYTES), MAX_BUFFER_BYTES))


def settings(transport: TransportPlan, links: Sequence[LinkSpec], *, router: bool) -> dict[str, str]:
    """Name to value of every setting; the same in each namespace but for forwarding."""
    largest = buffer_bytes(links)
    return {
        "net.ipv4.ip_forward": "1" if router else "0",
        "net.ipv6.conf.all.disable_ipv6": "1",  # IPv6 chatter would bypass the delay line
        "net.ipv6.conf.default.disable_ipv6": "1",
        "net.ipv4.conf.all.rp_filter": "0",
        "net.ipv4.conf.default.rp_filter": "0",
        "net.ipv4.conf.all.send_redirects": "0",
        "net.ipv4.tcp_rmem": f"4096 131072 {largest}",
        "net.ipv4.tcp_wmem": f"4096 65536 {largest}",
        "net.ipv4.tcp_slow_start_after_idle": str(int(transport.slow_start_after_idle)),
        "net.ipv4.tcp_no_metrics_save": "1",  # a connection must not learn from the one before it
    }


def apply_settings(transport: TransportPlan, links: Sequence[LinkSpec], *, router: bool) -> str | None:
    """Set everything in the namespace that the caller is in.

    Returns the congestion control if it must be put on the routes because the kernel refuses it as a namespace's
    default (it does so for all that are not its own default or in ``tcp_allowed_congestion_control``).
    """
    for name, value in settings(transport, links, router=router).items():
        with suppress(FileNotFoundError):  # a kernel without IPv6 has nothing to switch off
            set_sysctl(name, value)
    for table in _BRIDGE_FILTERS:
        with suppress(FileNotFoundError):  # present only with br_netfilter
            set_sysctl(f"net.bridge.bridge-nf-call-{table}", "0")
    return _set_congestion_control(transport.congestion_control)


def _set_congestion_control(name: str) -> str | None:
    try:
        set_sysctl("net.ipv4.tcp_congestion_control", name)
    except PermissionError:
        return name
    except FileNotFoundError as error:
        known = get_sysctl("net.ipv4.tcp_allowed_congestion_control")
        raise CapabilityError(
            f"this kernel has no congestion control '{name}' (it has {known}). Cure: sudo modprobe tcp_{name}"
        ) from error
    return None
