"""What each back end has for the runs that are made on it. Rooms above the worlds ask for that, and not for its name.

Where a rule of a scenario holds on one back end alone, the reason, or the cure, stands here beside the fact.
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

    links            what makes the Plan's links: ``SHAPED``, ``MODELLED``; empty if nothing does
    has_wan          whether what data centres send each other leaves the machine's own loopback
    about_links      the warning about a scenario's links on a back end that does not make them; empty on others
    has_processes    whether each node is a process with sockets; otherwise all nodes are one process
    in_virtual_time  whether its clock is no machine's
    no_link_faults   why no link can fail; empty if one can
    no_programs      why no program of a user's own can run, and the cure; empty if one can
    has_gpus         whether nodes may use those of the machine
    sources          beside what all back ends have in common, the code that determines results
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
        """Whether runs send over the machine's own network, as it is."""
        return not self.links

    @property
    def clock(self) -> str:
        """The clock of what the whole run is made in: the machine, or a kernel of its own."""
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
    """Return those of the run that a Plan, or a run's result, is of. ``plan``: the content of its file."""
    return BACK_ENDS[plan["back_end"]]
