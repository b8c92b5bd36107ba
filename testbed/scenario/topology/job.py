"""A job that shares a network with other jobs: where on the network it trains (``topology``), and when it starts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any

from testbed.declaration import item, option
from testbed.scenario.reading.declared import changes_of
from testbed.scenario.reading.violations import Violation
from testbed.scenario.topology.links import SiteName
from testbed.scenario.topology.topology import DataCenter, NamedSite, Topology, generated
from testbed.suggest import nearest_or_all

_NAMES_SHOWN = 12
JOB_SITE = changes_of(
    DataCenter,
    "JobSite",
    "What a job has in one data centre.",
    "workers",
    "global_servers",
    "device",
    "worker_devices",
    bases=(NamedSite,),
)


@dataclass(frozen=True, kw_only=True)
class JobPlace:
    """Where on the shared network a job trains."""

    sites: tuple[SiteName, ...] | None = None
    """The data centres in which the job has nodes; by default all. The others only carry its traffic, like routers."""
    central: str | None = option(None, form="name")
    """The data centre of the job's global servers, instead of the network's own."""
    workers: int | None = option(None, min=1, max=1000)
    """The job's workers in every data centre."""
    data_centers: tuple[Annotated[Any, item(section=JOB_SITE)], ...] = ()
    """What the job has in single data centres, by name."""

    def on(self, network: Topology) -> Topology:
        """Return the network with all its links and this job's nodes. ``mistakes`` must have found nothing before."""
        if self == JobPlace():
            return network
        network = generated(network)
        chosen = self._chosen(network)
        central = self.central or next(site.name for site in network.data_centers if site.central)
        sites = tuple(self._site(site, central) for site in network.data_centers if site.name in chosen)
        others = tuple(site.name for site in network.data_centers if site.name not in chosen)
        return replace(network, data_centers=sites, routers=(*network.routers, *others))

    def mistakes(self, network: Topology) -> list[Violation]:
        """Return everything that is wrong with this place on the given network."""
        network = generated(network)
        found = list(self._unknown(network))
        if not found and self != JobPlace():
            made = self.on(network)
            names = [change.name for change in self.data_centers]
            for problem in made.problems():
                at, text, cure = problem
                found.append(Violation(_written_at(at, made, names), text, cure))
        return found

    def _unknown(self, network: Topology) -> Iterator[Violation]:
        known = [site.name for site in network.data_centers]
        chosen = self._chosen(network)
        if self.sites is not None and not self.sites:
            yield Violation(("sites",), "is empty", "name at least one data centre")
        for index, name in enumerate(self.sites or ()):
            if name not in known:
                yield _no_site(("sites", index), name, known)
            elif name in (self.sites or ())[:index]:
                yield Violation(("sites", index), f"'{name}' is there already", "name each data centre once")
        if self.central is not None and self.central not in chosen:
            yield _no_site(("central",), self.central, chosen)
        for index, change in enumerate(self.data_centers):
            if change.name not in chosen:
                yield _no_site(("data_centers", index, "name"), change.name, chosen)
        own = next(site.name for site in network.data_centers if site.central)
        if self.central is None and self.sites and own not in self.sites:
            problem = f"'{own}', where the network has its global servers, is not among them"
            yield Violation(("sites",), problem, f"write 'central: {self.sites[0]}', or another of them")

    def _chosen(self, network: Topology) -> list[str]:
        return list(self.sites) if self.sites is not None else [site.name for site in network.data_centers]

    def _site(self, site: DataCenter, central: str) -> DataCenter:
        is_central = site.name == central
        changes: dict[str, Any] = {"central": is_central}
        if not is_central:
            changes["global_servers"] = None
        if self.workers is not None:
            changes["workers"] = self.workers
        for change in self.data_centers:
            if change.name == site.name:
                changes |= {key: value for key, value in vars(change).items() if value is not None and key != "name"}
        return replace(site, **changes)


@dataclass(frozen=True, kw_only=True)
class JobSection:
    """The keys that a job has in addition to the sections of a scenario."""

    scenario: str | None = None
    """The scenario that the job is based on: the name of a shipped one, or a file beside this one. The job's other keys
    change it."""
    start_s: float = option(0.0, unit="s")
    """When the job's nodes start, after the network is up."""
    topology: JobPlace = option(JobPlace())
    """Where on the network the job trains."""


def _written_at(at: str | tuple[str | int, ...], made: Topology, names: list[str]) -> tuple[str | int, ...]:
    """Return the job's key behind a problem at ``at``, a place in ``made``, the network with the job's nodes.

    Return ``()`` if the problem is not in a data centre that the job changes by name.
    """
    if isinstance(at, tuple) and len(at) > 1 and at[0] == "data_centers" and isinstance(at[1], int):
        name = made.data_centers[at[1]].name
        if name in names:
            return ("data_centers", names.index(name), *at[2:])
    return ()


def _no_site(at: tuple[str | int, ...], name: str, known: list[str]) -> Violation:
    return Violation(at, f"no data centre named '{name}'", nearest_or_all(name, known, _NAMES_SHOWN))
