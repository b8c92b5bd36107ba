"""Where a deployment runs: the section ``cluster``."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Any

from testbed.scenario.reading.quantities import BOOLEAN, TEXT, FieldType, integer, refuse, text_of
from testbed.scenario.reading.section import Section

_PORTS = re.compile(r"(\d{1,5})-(\d{1,5})")
_LABEL = re.compile(r"[^\s=]+=[^\s=]+")


def _ports(value: Any) -> tuple[int, int]:
    if isinstance(value, tuple):
        return value
    text = text_of(value)
    found = _PORTS.fullmatch(text)
    first, last = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1024 <= first <= last <= 65535:
        raise refuse(f"'{text}' is no range of ports from 1024 to 65535", "write e.g. '20000-20099'")
    return first, last


def _address(value: Any) -> str:
    text = text_of(value)
    try:
        return str(ipaddress.IPv4Address(text)) if text else ""
    except ValueError as error:
        raise refuse(f"'{text}' is no IPv4 address", "write e.g. '203.0.113.7'") from error


def _label(value: Any) -> str:
    text = text_of(value)
    if text and not _LABEL.fullmatch(text):
        raise refuse(f"'{text}' is no label", "write 'key=value', as in `ray start --labels key=value`")
    return text


PORTS = FieldType(_ports, {"type": "string", "examples": ["20000-20099"]}, lambda ports: f"{ports[0]}-{ports[1]}")
ADDRESS = FieldType(_address, {"type": "string", "examples": ["203.0.113.7"]})
LABEL = FieldType(_label, {"type": "string", "examples": ["dc=tokyo"]})


class ClusterSite(Section):
    """The machines of one data centre."""

    label: Annotated[str, LABEL] = ""
    """Label of its machines in the cluster; by default dc=NAME, and on `emulate` any machine that can emulate."""
    machines: Annotated[int, integer(0, 256)] = 1
    """How many machines its nodes are spread over; 0: all that have the label."""
    bind: Annotated[str, ADDRESS] = ""
    """Address at which its nodes listen; by default that of the machine in the cluster."""
    advertise: Annotated[str, ADDRESS] = ""
    """Address at which all others reach its nodes, where it differs from bind: behind NAT. Also write ports."""
    ports: Annotated[tuple[int, int] | None, PORTS] = None
    """Ports at which its nodes listen, one each in the order of `testbed plan`; by default the kernel chooses."""


class ClusterSection(Section):
    """Where `on: cluster` runs, and `on: emulate` on several machines; other back ends ignore it."""

    address: Annotated[str, TEXT] = "auto"
    """Address of the cluster's head (host:port); auto: the cluster that this machine is part of; loopback: no cluster,
    but a process for each machine, with an address of its own in 127.0.0.0/8."""
    emulate: Annotated[bool, BOOLEAN] = False
    """Whether `on: emulate` spreads the data centres over machines of the cluster that have a slot `emulate`."""
    machines: Annotated[int, integer(0, 256)] = 0
    """Over how many machines `emulate` spreads them; 0: all that have the slot."""
    data_centers: dict[str, ClusterSite] = {}
    """What differs from the defaults, by data centre."""
