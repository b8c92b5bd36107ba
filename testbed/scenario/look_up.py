"""Looks up a network by name or path: a built-in, a generator, a graph or topology file, or the one of a scenario."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from testbed.declaration import required
from testbed.errors import ScenarioError
from testbed.scenario import overrides as override_language
from testbed.scenario.load import load, may_name_code
from testbed.scenario.reading.declared import model_of, read
from testbed.scenario.reading.document import Mapping, Node, Scalar, Where, parse, plain
from testbed.scenario.reading.document import Sequence as SequenceNode
from testbed.scenario.reading.problems import lines_of, problems_of
from testbed.scenario.topology.topology import Topology, generated, graph_of
from testbed.scenario.topology.use import TOPOLOGY
from testbed.suggest import suggestion
from topologies.generators import GENERATORS
from topologies.graph import Graph
from topologies.library import BUILT_IN
from topologies.readers import endings
from topologies.text_file import TextFile


@dataclass(frozen=True)
class _Holder:
    """A document whose only section is ``topology``, so that a topology is read as in a scenario."""

    topology: Topology = required(form=TOPOLOGY)
    """The network."""


@dataclass(frozen=True)
class NetworkDescription:
    """A written-out topology and its annotated graph, whose rates are not divided by ``scale``."""

    name: str
    topology: Topology
    graph: Graph[str]


def network(name: str, overrides: Sequence[str] = (), allow_code: bool = False) -> NetworkDescription:
    """Return the network that ``name`` names, a name or a path. Raise ``ScenarioError``.

    overrides   ``key=value`` texts with keys that a scenario may write beside ``use``; for a generator, its options
    allow_code  whether a file outside the working directory may name code, which is then imported
    """
    path = Path(name)
    allow_code = allow_code or name in BUILT_IN or name in GENERATORS or may_name_code(path)
    if name in GENERATORS:
        overrides = [f"generator.{override}" for override in overrides]
        root: Node = _mapping({"generator": _mapping({"kind": Scalar(name, Where(name))}, name)}, name)
        return _made(name, _read(root, overrides, path.parent, allow_code))
    if name not in BUILT_IN and not path.suffix:
        hint = suggestion(name, [*BUILT_IN, *GENERATORS]) or f"built-in: {', '.join(BUILT_IN)}"
        raise ScenarioError(f"'{name}' is not a built-in topology, generator or file ({hint})")
    if path.suffix.lower() in (".yaml", ".yml") and _is_scenario(path):
        return _made(path.stem, load(path, overrides, allow_code=allow_code).topology)
    # resolve links: only files below the folder of the file itself may be read
    file = Path(os.path.realpath(path))
    used = name if name in BUILT_IN else file.name
    root = _mapping({"use": Scalar(used, Where(name))}, name)
    return _made(name if name in BUILT_IN else path.stem, _read(root, overrides, file.parent, allow_code))


def measured(files: Sequence[str], overrides: Sequence[str] = ()) -> NetworkDescription:
    """Return the network between the sites in files of measurements. Raise ``ScenarioError``.

    overrides  ``key=value`` texts with keys that a scenario may write beside ``measurements``
    """
    paths = [Path(os.path.realpath(file)) for file in files]
    for name, path in zip(files, paths, strict=True):
        if not path.is_file():
            raise ScenarioError(f"{name}: no such file")
        if path.suffix.lower() in endings():
            cure = f"`testbed topology {name}` shows it, and a scenario takes it as 'topology: {{use: {name}}}'"
            raise ScenarioError(f"{name}: is a network, not a file of measurements ({cure})")
    folder = Path(os.path.commonpath([path.parent for path in paths]))
    names = [Scalar(str(path.relative_to(folder)), Where(name)) for path, name in zip(paths, files, strict=True)]
    root = _mapping({"measurements": SequenceNode(Where(files[0]), [*names])}, files[0])
    return _made(", ".join(path.stem for path in paths), _read(root, overrides, folder, allow_code=False))


def _made(name: str, topology: Topology) -> NetworkDescription:
    made = topology.generator
    return NetworkDescription(name, generated(topology), made.options.build() if made else graph_of(topology))


def _mapping(entries: dict[str, Node], source: str) -> Mapping:
    return Mapping(Where(source), entries, dict.fromkeys(entries, Where(source)))


def _is_scenario(path: Path) -> bool:
    root = parse(TextFile.read(path).text, str(path))
    return isinstance(root, Mapping) and "topology" in root.entries


def _read(root: Node, overrides: Sequence[str], folder: Path, allow_code: bool) -> Topology:
    # ``network`` or ``measured`` wrote these keys, not a user. The text of a problem at such a key names the file.
    ours = [f"topology.{key}" for key in root.entries] if isinstance(root, Mapping) else []
    mistakes = override_language.apply(root, overrides, override_language.Known())
    source = root.where.source
    holder = _mapping({"topology": root}, source)
    context: dict[str, Any] = {"folder": folder, "allow_code": allow_code}
    try:
        found = read(_Holder, plain(holder), context)
    except ValidationError as error:
        problems = problems_of(error, holder, model_of(_Holder))
        named = [replace(problem, path=None) if problem.path in ours else problem for problem in problems]
        raise ScenarioError(mistakes + lines_of(named)) from None
    if mistakes:
        raise ScenarioError(mistakes)
    return found.topology
