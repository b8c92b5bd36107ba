"""Data centres of a scenario, and their LANs."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from testbed.scenario.reading.quantities import BOOLEAN, DELAY, NAME, RATE, integer
from testbed.scenario.reading.section import NULLABLE, Made, ReadAs, Section, changes_of
from testbed.scenario.sections.devices import DEVICE_CHANGES


class Lan(Section):
    """The network inside a data centre."""

    rate: Annotated[float, RATE] = 1e9
    """Rate of every node's port, each way."""
    delay: Annotated[float, DELAY] = 0.0001
    """One-way delay between any two nodes."""


class DataCenter(Section):
    """One site: a LAN with workers and a local server; the central one also holds global servers and the scheduler."""

    name: Annotated[str, NAME]
    """Name of the data centre; its nodes are name/worker0, name/server0, …."""
    central: Annotated[bool, BOOLEAN] = False
    """Whether the global servers are in this data centre. Exactly one data centre is central."""
    workers: Annotated[int, integer(0, 1000)] = 2
    """Workers in this data centre. Only the central one may have 0."""
    global_servers: Annotated[int | None, integer(1, 64)] = None
    """Global servers in the central data centre (default 1); keys are sharded over them."""
    lan: Annotated[Lan | None, NULLABLE] = None
    """A LAN that differs from topology.lan."""
    device: Annotated[Section | None, DEVICE_CHANGES] = None
    """What differs for all workers of this data centre."""
    worker_devices: dict[str, Annotated[Section, DEVICE_CHANGES]] = Field(default_factory=dict)
    """What differs for single workers, e.g. {worker1: {speed: 0.5}}."""


class NamedSite(Made):
    """The data centre that changes are about."""

    name: Annotated[str, NAME] = Field(description="Name of the data centre.")


SITE_CHANGE = ReadAs(
    changes_of(
        DataCenter, "SiteChange", "What differs in one data centre.",
        "workers", "global_servers", "lan", "device", "worker_devices", base=NamedSite,
    )
)  # fmt: skip
