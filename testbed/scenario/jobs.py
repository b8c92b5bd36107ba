"""A file with several jobs on one network: ``jobs: {NAME: {…}, …}``.

Each job is a scenario, which is written here, or in another file that ``scenario`` names, with changes beside this key.
The settings of the network and of the run are written once, beside ``jobs``:

    topology: {use: hmc4}
    jobs:
      vision: {scenario: quickstart, training: {rounds: 40}}
      text: {scenario: text.yaml, start: 30 s, topology: {sites: [tokyo, seoul], central: tokyo}}

A job is read as if it were a scenario of its own, so the rest of the program need not know where it was written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import ValidationError

from testbed import shipped
from testbed.declaration import item, option, required
from testbed.errors import ScenarioError
from testbed.ids import NAME_PATTERN, name_cure
from testbed.scenario import presets
from testbed.scenario.load import Given, may_name_code, read_tree, set_in
from testbed.scenario.reading.axes import TIERS
from testbed.scenario.reading.declared import model_of, read
from testbed.scenario.reading.document import Mapping, Node, Scalar, copied, flow, plain
from testbed.scenario.reading.document import Sequence as Items
from testbed.scenario.reading.files import read_document
from testbed.scenario.reading.keys import keys_of
from testbed.scenario.reading.problems import UNKNOWN_KEY, Problem, lines_of, problem_at, problems_of
from testbed.scenario.reading.quantities import exactly
from testbed.scenario.schema import MODEL, Scenario
from testbed.scenario.topology.job import JobPlace, JobSection
from testbed.scenario.topology.topology import Topology
from testbed.scenario.topology.use import TOPOLOGY
from testbed.settings.faults import LINK_KINDS
from testbed.settings.run import Background
from testbed.suggest import nearest_or_all, suggestion

KEY = "jobs"
OF_NETWORK = ("topology", "background")
OF_RUN = ("run", "transport", "simulation", "exact")
_OF_FILE = ("version", "name", "seed", "faults", *OF_NETWORK, *OF_RUN, KEY)
_OVERRIDE = re.compile(rf"\s*{KEY}(?P<by>\.|\[)(?P<name>[^].=[]*)\]?\s*[.[]")  # of a value in a job
_SAMPLES = {"version": "1", "name": "sample", "seed": "0"}  # replace missing or wrong values
_FAULT = re.compile(r"faults\[(?P<number>\d+)\]")
_NEVER = ("version", "name", "cluster", "sweep", KEY)


@dataclass(frozen=True, kw_only=True)
class _File:
    """The parts of a file with jobs that describe the network and the places of jobs on it."""

    version: int = required(form=exactly(1, "this release reads version 1"))
    """Version of this format."""
    name: str = required(form="name")
    """Name of the run."""
    seed: int = required(max=2**63 - 1)
    """Seed of everything random in the network, and of jobs without a seed of their own."""
    topology: Topology | None = option(None, form=TOPOLOGY)
    """The network."""
    background: tuple[Background, ...] = ()
    """Traffic that belongs to no job."""
    jobs: dict[str, Annotated[JobSection, item(section=JobSection)]] = option(dict)
    """The jobs."""


@dataclass(frozen=True)
class ReadJob:
    """A job as a scenario of its own, and its start time. The name is empty if the file has no ``jobs``."""

    name: str
    scenario: Scenario
    start_s: float = 0.0


@dataclass(frozen=True)
class ReadJobs:
    """The jobs of a file. ``network``: a scenario that holds the topology, background and faults of the network."""

    name: str
    jobs: tuple[ReadJob, ...]
    network: Scenario

    @property
    def are_several(self) -> bool:
        """Whether the file has the key ``jobs``, even with a single job."""
        return bool(self.jobs[0].name)


def load_jobs(
    path: str | Path, overrides: Sequence[str] = (), *, on: str | None = None, allow_code: bool = False
) -> ReadJobs:
    """Read a scenario file, with jobs or without. Arguments and errors are those of ``testbed.scenario.load.load``."""
    path = shipped.path_of(path)
    root = read_document(path)
    allow_code = allow_code or may_name_code(path)
    if not isinstance(root, Mapping) or KEY not in root.entries:
        scenario = read_tree(root, overrides, on, Given(path.parent, allow_code))
        return ReadJobs(scenario.name, (ReadJob("", scenario),), scenario)
    return _Jobs(root, path.parent, allow_code, overrides, on).read()


class _Jobs:
    """Reads one file."""

    def __init__(self, root: Mapping, folder: Path, allow_code: bool, overrides: Sequence[str], on: str | None) -> None:
        self._root = root
        self._folder = folder
        self._allow_code = allow_code
        self._problems = _of_no_job(root, overrides) or set_in(root, overrides, on)
        if self._problems:
            raise ScenarioError(self._problems)
        self._keep(self._wrong_keys())
        jobs = root.entries[KEY]
        entries = jobs.entries if isinstance(jobs, Mapping) else {}
        nodes = {name: _own(node) for name, node in entries.items() if isinstance(node, Mapping)}
        self._bases = {}
        for name, node in nodes.items():
            with self._collected():
                self._bases[name] = self._base(name, node)
        self._nodes = {name: nodes[name] for name in self._bases}
        if not self._nodes:
            raise ScenarioError(self._problems)

    def read(self) -> ReadJobs:
        with self._collected():
            found = self._read()
        if self._problems:
            raise ScenarioError(list(dict.fromkeys(self._problems)))
        return found

    def _read(self) -> ReadJobs:
        """Read the file. Problems in one place are kept in ``_problems``, and the rest is still read."""
        self._settings = {key: self._agreed(key) for key in (*OF_NETWORK, *OF_RUN)}
        file = self._read_file()
        network = file.topology
        assert network is not None, "which _agreed has found"
        jobs = []
        for name, section in file.jobs.items():
            mistakes = section.topology.mistakes(network)
            self._keep(problem_at(self._root, found, (KEY, name, "topology")) for found in mistakes)
            place = JobPlace() if mistakes else section.topology
            with self._collected():
                jobs.append(ReadJob(name, self._job(name, place, network), section.start_s))
        for job in jobs:
            self._keep(self._cannot_share(job, len(self._nodes)))
        if self._problems:
            raise ScenarioError(self._problems)
        first = jobs[0].scenario
        faults = tuple(fault for fault in first.faults if fault.hits_links)
        whole = replace(first, topology=network, background=file.background, faults=faults, seed=file.seed)
        return ReadJobs(file.name, tuple(jobs), whole)

    def _keep(self, problems: Iterator[Problem]) -> None:
        self._problems += lines_of(list(problems))

    @contextmanager
    def _collected(self) -> Iterator[None]:
        """Keep the problems that the ``with`` block raises, and continue after it."""
        try:
            yield
        except ScenarioError as error:
            self._problems += error.problems

    # ---- the file as a whole ------------------------------------------------------------------------------------

    def _wrong_keys(self) -> Iterator[Problem]:
        root = self._root
        for key in root.entries:
            if key in _OF_FILE:
                continue
            known = key in keys_of(MODEL)
            cure = f"write it at a job: 'jobs: {{NAME: {{{key}: …}}}}'" if known else suggestion(key, _OF_FILE) or ""
            yield Problem(root.keys[key], key, "belongs to a job" if known else "unknown key", cure)
        faults = root.entries.get("faults")
        if faults is not None and not isinstance(faults, Items):
            yield Problem(root.keys["faults"], "faults", "expected a list")
        jobs = root.entries[KEY]
        if not isinstance(jobs, Mapping) or not jobs.entries:
            problem = "has no job" if not isinstance(jobs, Items) else "expected a mapping by name, got a list"
            yield Problem(root.keys[KEY], KEY, problem, "write 'jobs: {NAME: {scenario: quickstart}}'")
            return
        for fault, kind in _faults_of(root):
            if kind not in LINK_KINDS:
                cure = "write it in 'faults' of a job"
                yield Problem(fault.where, "faults", f"'{kind}' hits nodes, which belong to a job", cure)
        for name, node in jobs.entries.items():
            where = jobs.keys[name]
            if not NAME_PATTERN.fullmatch(name):
                yield Problem(where, f"{KEY}.{name}", f"'{name}' is not a valid name", name_cure(name))
            if not isinstance(node, Mapping):
                yield Problem(where, f"{KEY}.{name}", "expected a mapping", "write e.g. '{scenario: quickstart}'")
                continue
            yield from _of_others(name, node)

    def _read_file(self) -> _File:
        """Read the network, and the places of the jobs on it."""
        keys = ("scenario", "start", "topology")
        places = {
            name: {key: plain(node.entries[key]) for key in keys if key in node.entries}
            for name, node in self._nodes.items()
        }
        root = Mapping(self._root.where, dict(self._root.entries), dict(self._root.keys))
        tree: dict[str, Any] = {KEY: places}
        tree |= {key: plain(root.entries[key]) for key in ("version", "name", "seed") if key in root.entries}
        for key in OF_NETWORK:
            if (node := self._settings[key]) is not None:
                tree[key] = plain(node)
                root.entries[key] = node
                root.keys.setdefault(key, node.where)
        context = self._context(self._folder_of("topology"))
        try:
            return read(_File, tree, context)
        except ValidationError as error:
            self._problems += lines_of(problems_of(error, root, model_of(_File)))
        for key, sample in _SAMPLES.items():  # read the rest with these values, to find other problems
            self._root.entries[key] = Scalar(sample, self._root.where)
            tree[key] = plain(self._root.entries[key])
        try:
            return read(_File, tree, context)
        except ValidationError as error:  # of the network or of a job's place, without which nothing else can be told
            raise ScenarioError(self._problems) from error

    def _context(self, folder: Path) -> dict[str, Any]:
        return {"folder": folder, "allow_code": self._allow_code, "code": [], "traces": []}

    def _folder_of(self, key: str) -> Path:
        """Return the folder for relative paths in a shared section: the folder of the file that has the section."""
        if key in self._root.entries:
            return self._folder
        return next((path.parent for path, _ in self._bases.values() if path is not None), self._folder)

    # ---- one job ------------------------------------------------------------------------------------------------

    def _base(self, name: str, node: Mapping) -> tuple[Path | None, Mapping]:
        """Return the file that a job's ``scenario`` names, and its tree; without one, ``None`` and an empty tree."""
        named = node.entries.get("scenario")
        if not isinstance(named, Scalar) or named.is_null:
            return None, Mapping(node.where)
        path = self._path_of(named, f"{named.where}: {KEY}.{name}.scenario")
        root = read_document(path)
        if not isinstance(root, Mapping) or KEY in root.entries:
            raise ScenarioError(f"{named.where}: {KEY}.{name}.scenario: {named.text} is not a scenario of a single job")
        root.entries.pop("sweep", None)
        root.keys.pop("sweep", None)
        return path, root

    def _path_of(self, named: Scalar, place: str) -> Path:
        if named.text in shipped.names():
            return shipped.names()[named.text]
        path = self._folder / named.text
        with suppress(OSError, RuntimeError, ValueError):  # a loop of links, or a name that no file can have
            path = path.resolve()
        if not path.is_relative_to(self._folder.resolve()):
            raise ScenarioError(
                f"{place}: '{named.text}' lies outside the folder of this file (copy it into that folder)"
            )
        if not os.path.isfile(path):  # noqa: PTH113 - which takes every name
            hint = suggestion(named.text, list(shipped.names())) or "`testbed scenarios` lists the shipped ones"
            raise ScenarioError(
                f"{place}: '{named.text}' is neither a file beside this one nor a shipped scenario ({hint})"
            )
        return path

    def _agreed(self, key: str) -> Node | None:
        """Return a section that jobs share: that of this file, or of the scenarios of all jobs if these are equal."""
        if key in self._root.entries:
            return self._root.entries[key]
        if key == "background" and "topology" in self._root.entries:
            return None  # background traffic of the jobs' scenarios belongs to other networks
        said: dict[str, tuple[str, Node | None]] = {}
        for name, (path, root) in self._bases.items():
            node = root.entries.get(key)
            if path is not None or key == "topology":
                said[name] = ("" if node is None else flow(node)), node
        first = next(iter(said), "")
        for other, (text, _) in said.items():
            if text != said[first][0]:
                raise ScenarioError(
                    f"{self._root.keys[KEY]}: {KEY}: '{first}' and '{other}' have different sections '{key}', but "
                    f"jobs share it (write '{key}' beside 'jobs', for all of them)"
                )
        found = next((node for _, node in said.values()), None)
        if key == "topology" and found is None:
            raise ScenarioError(f"{self._root.keys[KEY]}: topology: required key is missing (write it beside 'jobs')")
        return found

    def _job(self, name: str, place: JobPlace, network: Topology) -> Scenario:
        """Return a job as a scenario of its own."""
        path, base = self._bases[name]
        node = self._nodes[name]
        own = Mapping(node.where, dict(node.entries), dict(node.keys))
        for key in ("scenario", "start", "topology"):
            own.entries.pop(key, None)
            own.keys.pop(key, None)
        root = copied(base)
        assert isinstance(root, Mapping)
        technique = own.entries.get(presets.KEY)
        naming = [f"{presets.KEY}={technique.text}"] if isinstance(technique, Scalar) and path is not None else []
        _merge(root, own)
        own_faults = [fault for fault, kind in _faults_of(root) if kind not in LINK_KINDS]
        for key, value in self._settings.items():
            _put(root, key, value, self._root)
        if place.sites is not None:
            _put(root, "background", None, self._root)  # its ends may be data centres without this job
        _put(root, "version", self._root.entries["version"], self._root)
        _put(root, "name", Scalar(name, node.where), self._root)
        if "seed" not in own.entries:
            _put(root, "seed", self._root.entries["seed"], self._root)
        of_links = self._link_faults()
        faults = Items(node.where, [*of_links, *own_faults])
        if isinstance(root.entries.get("faults", faults), Items):  # otherwise the reader reports the problem
            _put(root, "faults", faults if faults.items else None, self._root)
        folder = path.parent if path is not None else self._folder
        allow_code = self._allow_code and (path is None or may_name_code(path))
        path_in_file = partial(_path_in_file, name, len(of_links))
        given = Given(folder, allow_code, {"topology": place.on(network)}, path_in_file)
        return read_tree(root, naming, None, given)

    def _link_faults(self) -> list[Node]:
        """Return the faults of links, from this file and from the scenarios whose network the jobs share."""
        found = [fault for fault, _ in _faults_of(self._root)]
        if "topology" not in self._root.entries:
            bases = [
                [flow(fault) for fault, kind in _faults_of(root) if kind in LINK_KINDS]
                for _, root in self._bases.values()
            ]
            if any(faults != bases[0] for faults in bases):
                raise ScenarioError(
                    f"{self._root.keys[KEY]}: {KEY}: the scenarios of these jobs have different faults of links, but "
                    "jobs share links (write 'topology' and 'faults' beside 'jobs', for all of them)"
                )
            first = next(iter(self._bases.values()))[1]
            found += [fault for fault, kind in _faults_of(first) if kind in LINK_KINDS]
        return found

    def _cannot_share(self, job: ReadJob, count: int) -> Iterator[Problem]:
        """Yield problems for settings of a job that need a network of their own."""
        scenario = job.scenario

        def at(path: tuple[str | int, ...], problem: str, cure: str) -> Problem:
            text = ".".join(map(str, (KEY, job.name, *path)))
            return Problem(scenario.place_of(*path), text, problem, cure)

        if scenario.run.on == "cluster":
            cure = "deploy each job by its own `testbed run`: machines have their own network"
            yield Problem(scenario.place_of("run", "on"), "run.on", "several jobs cannot be deployed by one run", cure)
        if count == 1:
            return
        if scenario.checkpoint.every:
            cure = "leave it out: a checkpoint waits until no message is on its way, but other jobs keep sending"
            yield at(("checkpoint", "every"), "is not possible with several jobs", cure)
        if scenario.recovery.on_failure == "restart":
            cure = "write 'continue' or 'abort': a restart creates the network anew, but other jobs are using it"
            yield at(("recovery", "on_failure"), "'restart' is not possible with several jobs", cure)
        if scenario.is_program:
            cure = "leave it out, or give it a run of its own"
            yield at(("workload", "command"), "a program cannot share a network with other jobs", cure)


def _own(node: Mapping) -> Mapping:
    """Return the entries of a job without the keys that a job may not have."""
    keys = [key for key in node.entries if key in _of_job()]
    return Mapping(node.where, {key: node.entries[key] for key in keys}, {key: node.keys[key] for key in keys})


def _path_in_file(job: str, shared_faults: int, path: str) -> str:
    """Return how the file writes a path of a job. A job's first faults are the shared ones, written beside ``jobs``."""
    fault = _FAULT.match(path)
    if fault is None:
        return f"{KEY}.{job}.{path}"
    number = int(fault["number"])
    if number < shared_faults:
        return path
    return f"{KEY}.{job}.faults[{number - shared_faults}]{path[fault.end() :]}"


def _of_no_job(root: Mapping, overrides: Sequence[str]) -> list[str]:
    """Return the mistakes of overrides for a job that the file does not have."""
    jobs = root.entries[KEY]
    names = list(jobs.entries) if isinstance(jobs, Mapping) else []
    found = []
    for override in overrides:
        of_job = _OVERRIDE.match(override)
        if of_job is None:
            continue
        name = of_job["name"]
        if of_job["by"] == "[" or name == "*":
            found.append(f"--set {override}: name one job (jobs.NAME.…, NAME one of {', '.join(names)})")
        elif name not in names:
            found.append(f"--set {override}: no job '{name}' ({nearest_or_all(name, names)})")
    return found


def _of_job() -> tuple[str, ...]:
    """Return the keys that a job may have."""
    sections = (key for key in keys_of(MODEL) if key not in (*_NEVER, *OF_NETWORK, *OF_RUN))
    return ("scenario", "start", "topology", *sections)


def _of_others(name: str, node: Mapping) -> Iterator[Problem]:
    """Yield problems for keys in a job that belong beside ``jobs``."""
    for key in node.entries:
        if key in (*OF_RUN, "background"):
            cure = f"write '{key}' beside 'jobs', for all of them"
            yield Problem(node.keys[key], f"{KEY}.{name}.{key}", "is the same for all jobs", cure)
        elif key in _NEVER:
            yield Problem(node.keys[key], f"{KEY}.{name}.{key}", "does not belong in a job", "leave it out")
        elif key not in _of_job():
            cure = suggestion(key, _of_job()) or f"allowed: {', '.join(_of_job())}"
            yield Problem(node.keys[key], f"{KEY}.{name}.{key}", UNKNOWN_KEY, cure)
    for fault, kind in _faults_of(node):
        if kind in LINK_KINDS:
            cure = "write it in 'faults' beside 'jobs'"
            yield Problem(fault.where, f"{KEY}.{name}.faults", f"'{kind}' hits links, which jobs share", cure)


def _faults_of(root: Mapping) -> Iterator[tuple[Node, str]]:
    """Yield the faults of a tree with their kinds; malformed faults are left out."""
    faults = root.entries.get("faults")
    for fault in faults.items if isinstance(faults, Items) else ():
        kind = fault.entries.get("kind") if isinstance(fault, Mapping) else None
        yield fault, kind.text if isinstance(kind, Scalar) else ""


def _put(root: Mapping, key: str, value: Node | None, where: Mapping) -> None:
    """Set a key, or remove it."""
    if value is None:
        root.entries.pop(key, None)
        root.keys.pop(key, None)
    else:
        root.entries[key] = copied(value)
        root.keys[key] = where.keys.get(key, value.where)


def _merge(base: Mapping, own: Mapping) -> None:
    """Change ``base`` by ``own``: sections are merged; lists, other values and sections of another kind replaced."""
    for key, node in own.entries.items():
        before = base.entries.get(key)
        base.keys[key] = own.keys[key]
        if isinstance(before, Scalar) and not before.is_null and isinstance(node, Mapping):
            before = Mapping(before.where, {"kind": before}, {"kind": before.where})
        if isinstance(before, Mapping) and isinstance(node, Mapping) and _has_same_form(before, node):
            _merge(before, node)
            base.entries[key] = before
        else:
            base.entries[key] = copied(node)


def _has_same_form(before: Mapping, node: Mapping) -> bool:
    """Return whether ``node`` has options for ``before``: it names no kind, and both have tiers or neither has."""
    in_tiers = [any(tier in each.entries for tier in TIERS) for each in (before, node)]
    return "kind" not in node.entries and in_tiers[0] == in_tiers[1]
