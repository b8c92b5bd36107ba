"""The facilities of each back end. Code outside the worlds checks these facilities, never the name of a back end.

If a rule of a scenario applies to one back end only, its reason or its cure is given here, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SHAPED = "shaped"  # by a kernel's queues
MODELLED = "modelled"  # by arithmetic, or packet by packet


@dataclass(frozen=True, slots=True, kw_only=True)
class Facilities:
    """One back end.

    links            how the Plan's links are made: ``SHAPED`` or ``MODELLED``; empty: they are not
    has_wan          whether messages between data centres leave the machine's own loopback
    about_links      the warning about a scenario's links, if the back end does not make them; else empty
    has_processes    whether each node is a process with sockets; otherwise one process runs all nodes
    in_virtual_time  whether runs use virtual time instead of a machine's clock
    no_link_faults   why links cannot fail; empty if they can
    no_programs      why users' programs cannot run, and the cure; ``None`` if they can
    has_gpus         whether nodes may use the machine's GPUs
    sources          the code that determines results, beside the code that all back ends share
    """

    name: str
    sources: tuple[str, ...]
    links: str = ""
    has_wan: bool = True
    about_links: str = ""
    has_processes: bool = True
    in_virtual_time: bool = False
    no_link_faults: str = ""
    no_programs: tuple[str, str] | None = None
    has_gpus: bool = True

    @property
    def shapes_links(self) -> bool:
        """Whether nodes are processes behind emulated links."""
        return self.links == SHAPED

    @property
    def is_unshaped(self) -> bool:
        """Whether runs use the machine's own network unchanged."""
        return not self.links

    @property
    def clock(self) -> str:
        """The clock of the machine, or of the kernel, in which the whole run is made."""
        return "virtual time" if self.in_virtual_time and self.has_processes else "wall clock"


BACK_ENDS = {
    each.name: each
    for each in (
        Facilities(
            name="emulate",
            links=SHAPED,
            # the fidelity of an emulated run is decided by a simulation of its first rounds
            sources=("testbed/realtime", "testbed/simulation", "emulation"),
        ),
        Facilities(
            name="simulate",
            links=MODELLED,
            has_processes=False,
            in_virtual_time=True,
            no_programs=(
                "a program has processes and sockets of its own, which virtual time does not see",
                "run it 'on: emulate' or 'on: local'",
            ),
            sources=("testbed/simulation",),
        ),
        Facilities(
            name="local",
            has_wan=False,
            about_links="have no effect on 'local', for loopback has no WAN",
            no_link_faults="loopback has none",
            sources=("testbed/realtime",),
        ),
        Facilities(
            name="exact",
            links=SHAPED,
            in_virtual_time=True,
            has_gpus=False,
            sources=("testbed/realtime", "emulation"),
        ),
        Facilities(
            name="cluster",
            about_links=(
                "describe the cluster's own links, which are measured and not changed; deadlines follow from them"
            ),
            no_link_faults="those of a cluster are not the run's to change",
            no_programs=(
                "starts a program, and on a cluster only the testbed's own nodes are started",
                "write 'on: emulate' or 'local', or start the program by the cluster",
            ),
            sources=("testbed/realtime", "testbed/cluster"),
        ),
    )
}


def facilities_of(plan: Mapping[str, Any]) -> Facilities:
    """Return the facilities of a run's back end. ``plan``: the content of a Plan's or a result's file."""
    return BACK_ENDS[plan["back_end"]]
