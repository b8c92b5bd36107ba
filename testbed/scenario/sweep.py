"""Sweeps: many scenarios from one, by lists of values. Written on the command line, in the scenario, or in a file.

In YAML, either as a section of the scenario or in a file of its own that names the scenario::

    scenario: quickstart.yaml          # only in a file of its own; relative to it
    sweep:
      seeds: 5                         # the scenario's seed and the four after it; or a list of seeds
      grid:                            # every value with every other
        codec: [none, fp16]
        links[*].rate: [5 Mbit/s, 20 Mbit/s]
      zip:                             # first with first, second with second, …
        training.batch: [16, 32]
        optimizer.learning_rate: [0.001, 0.002]

On the command line: ``--set codec=none,fp16``, ``--zip``, ``--seeds 5``, ``--seeds 1,2,5``. Commas within brackets or
quotes do not split.

``--techniques all``, or a list of names, sweeps the setting ``technique`` (``testbed.scenario.presets``).

Named techniques are settings with a name, from a file or from the command line (``NAME:PATH=VALUE;PATH=VALUE``)::

    fsa: {sync: fsa}
    hfa: {sync: {kind: hfa, k1: 2, k2: 2}, optimizer.at: worker}
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from testbed.axes import names_code
from testbed.errors import ScenarioError
from testbed.scenario.load import completed
from testbed.scenario.presets import KEY as TECHNIQUE
from testbed.scenario.presets import presets
from testbed.scenario.reading.document import Mapping, Node, Scalar, flow
from testbed.scenario.reading.document import Sequence as Items
from testbed.scenario.reading.files import read_document
from testbed.shipped import path_of
from testbed.suggest import suggestion
from testbed.units import parse_whole

MAX_POINTS = 100_000
_KEYS = ("seeds", "grid", "zip")
Techniques = dict[str, dict[str, str]]


@dataclass(frozen=True, slots=True)
class SweepAxis:
    """Settings that change together: ``steps[i]`` holds one value per path."""

    paths: tuple[str, ...]
    steps: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class SweepSettings:
    """The settings of a sweep. ``seeds`` is ``None`` for the scenario's own, a number of seeds, or a list of seeds."""

    axes: tuple[SweepAxis, ...] = ()
    seeds: int | tuple[int, ...] | None = None

    def settings(self) -> Iterator[dict[str, str]]:
        """Yield path to value, one mapping per point, without seeds; the last axis changes fastest."""
        for chosen in product(*(axis.steps for axis in self.axes)):
            yield {
                path: value
                for axis, step in zip(self.axes, chosen, strict=True)
                for path, value in zip(axis.paths, step, strict=True)
            }

    def seeds_from(self, first: int) -> tuple[int, ...]:
        """Return the seeds of every point; ``first`` is the scenario's."""
        if self.seeds is None:
            return (first,)
        return tuple(range(first, first + self.seeds)) if isinstance(self.seeds, int) else self.seeds

    def varied(self) -> tuple[str, ...]:
        """Return the paths that take more than one value, in order."""
        return tuple(path for axis in self.axes if len(axis.steps) > 1 for path in axis.paths)


def from_options(grid: Sequence[str], zipped: Sequence[str], seeds: int | tuple[int, ...] | None) -> SweepSettings:
    """Return the sweep of ``path=value,value`` texts. Raise ``ScenarioError``."""
    axes = [SweepAxis((path,), tuple((value,) for value in values)) for path, values in map(_option, grid)]
    together = [*map(_option, zipped)]
    _no_path_twice([path for path, _ in together])
    return _checked(SweepSettings((*axes, *_zip(dict(together), "--zip")), seeds))


@dataclass(frozen=True, slots=True)
class TuningRange:
    """``--tune``: the values of an optimizer's option that are searched, and with how many runs for each point."""

    path: str
    low: float
    high: float
    trials: int


def tuning_range(text: str, trials: int) -> TuningRange:
    """Return the range of ``learning_rate=3e-4..1e-1``. Raise ``ScenarioError``."""
    name, equals, ends = text.partition("=")
    low, dots, high = ends.partition("..")
    path = name.strip() if "." in name else f"optimizer.{name.strip()}"
    try:
        found = TuningRange(path, float(low), float(high), trials)
    except ValueError:
        found = TuningRange(path, 0.0, 0.0, trials)
    if not (equals and dots and 0 < found.low < found.high < math.inf):
        raise ScenarioError(f"--tune {text}: not a range (write e.g. learning_rate=0.0003..0.1, both above 0)")
    if not path.startswith("optimizer."):
        raise ScenarioError(f"--tune {text}: '{path}' is not an optimizer's option (write optimizer.NAME=LOW..HIGH)")
    if trials < 1:
        raise ScenarioError(f"--trials {trials}: at least 1")
    return found


def with_techniques(sweep: SweepSettings, names: Sequence[str]) -> SweepSettings:
    """Return the sweep with these presets as an axis. Raise ``ScenarioError`` if a name, or ``technique``, is twice."""
    axis = SweepAxis((TECHNIQUE,), tuple((name,) for name in names))
    return _checked(SweepSettings((axis, *sweep.axes), sweep.seeds))


def technique_names(text: str) -> list[str]:
    """Return the names in ``all``, or in a list with commas. Raise ``ScenarioError`` for one that is unknown."""
    names = list(presets()) if text == "all" else split_values(text)
    for name in names:
        if name not in presets() and not names_code(name):
            near = suggestion(name, presets())
            hint = near or f"all, or of {', '.join(presets())}"
            raise ScenarioError(f"--techniques: '{name}' is not a technique ({hint})")
    return names


def joined(file: SweepSettings, options: SweepSettings) -> SweepSettings:
    """Return a file's sweep with paths that options add or replace. The other paths of a ``zip`` stay together."""
    given = {completed(path) for axis in options.axes for path in axis.paths}
    kept = filter(None, (_without(axis, given) for axis in file.axes))
    return _checked(SweepSettings((*kept, *options.axes), options.seeds if options.seeds is not None else file.seeds))


def _without(axis: SweepAxis, places: set[str]) -> SweepAxis | None:
    """Return the axis without the paths at ``places``, and without the duplicate steps that result."""
    left = [index for index, path in enumerate(axis.paths) if completed(path) not in places]
    steps = dict.fromkeys(tuple(step[index] for index in left) for step in axis.steps)
    return SweepAxis(tuple(axis.paths[index] for index in left), tuple(steps)) if left else None


def read_sweep(path: Path) -> tuple[Path, SweepSettings]:
    """Return the scenario to vary and the ``sweep`` section of a file; an empty sweep if it has none."""
    path = path_of(path)
    root = read_document(path)
    if not isinstance(root, Mapping):
        return path, SweepSettings()
    scenario = root.entries.get("scenario")
    section = root.entries.get("sweep")
    if scenario is None:
        return path, _section(section) if section else SweepSettings()
    others = sorted(set(root.entries) - {"scenario", "sweep"})
    if others or not isinstance(scenario, Scalar):
        where = root.keys[others[0]] if others else root.keys["scenario"]
        raise ScenarioError(f"{where}: a sweep file holds 'scenario: FILE' and 'sweep: …' only")
    return path.parent / scenario.text, _section(section) if section else SweepSettings()


def is_swept(path: Path) -> bool:
    """Return whether a file has a section ``sweep``. Raise ``ScenarioError`` if it cannot be read."""
    root = read_document(path_of(path))
    return isinstance(root, Mapping) and "sweep" in root.entries


def fixed(settings: Sequence[str], seed: int | None) -> SweepSettings:
    """Return ``path=value`` texts as a sweep of one point, whose values replace those of a file in ``joined``."""
    axes = tuple(SweepAxis((path,), ((value,),)) for path, value in settings_of(settings).items())
    return SweepSettings(axes, None if seed is None else (seed,))


def _section(node: Node) -> SweepSettings:
    if not isinstance(node, Mapping):
        raise ScenarioError(f"{node.where}: sweep: expected a mapping with {', '.join(_KEYS)}")
    for key, where in node.keys.items():
        if key not in _KEYS:
            raise ScenarioError(f"{where}: sweep.{key}: unknown key (one of {', '.join(_KEYS)})")
    grid = _lists(node.entries.get("grid"), "grid")
    axes = [SweepAxis((path,), tuple((value,) for value in values)) for path, values in grid.items()]
    zipped = _zip(_lists(node.entries.get("zip"), "zip"), f"{node.where}: sweep.zip")
    return _checked(SweepSettings((*axes, *zipped), _seeds(node.entries.get("seeds"))), f"{node.where}: sweep: ")


def _seeds(node: Node | None) -> int | tuple[int, ...] | None:
    if node is None:
        return None
    texts = [flow(item) for item in node.items] if isinstance(node, Items) else [flow(node)]
    try:
        numbers = tuple(map(parse_whole, texts))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 0:
        raise ScenarioError(f"{node.where}: sweep.seeds: expected a number of seeds, or a list such as [1, 2, 5]")
    return numbers if isinstance(node, Items) else numbers[0]


def _lists(node: Node | None, key: str) -> dict[str, list[str]]:
    if node is None:
        return {}
    if not isinstance(node, Mapping):
        raise ScenarioError(f"{node.where}: sweep.{key}: expected path: [value, …]")
    for path, values in node.entries.items():
        if not isinstance(values, Items) or not values.items:
            raise ScenarioError(f"{node.keys[path]}: sweep.{key}.{path}: expected a list of values")
    return {path: [flow(item) for item in values.items] for path, values in node.entries.items()}  # type: ignore[union-attr]


def _zip(lists: dict[str, list[str]], place: str) -> list[SweepAxis]:
    lengths = {path: len(values) for path, values in lists.items()}
    if len(set(lengths.values())) > 1:
        lengths_given = ", ".join(f"{path} has {count}" for path, count in lengths.items())
        raise ScenarioError(f"{place}: the lists differ in length: {lengths_given}")
    return [SweepAxis(tuple(lists), tuple(zip(*lists.values(), strict=True)))] if lists else []


def _checked(sweep: SweepSettings, place: str = "") -> SweepSettings:
    """Return the sweep. Raise ``ScenarioError``, whose text begins with ``place``."""
    paths = [path for axis in sweep.axes for path in axis.paths]
    _no_path_twice(paths, place)
    for axis in sweep.axes:
        _no_value_twice([", ".join(step) for step in axis.steps], f"{place}{', '.join(axis.paths)}")
    if isinstance(sweep.seeds, tuple):
        if min(sweep.seeds, default=-1) < 0:
            raise ScenarioError(f"{place}seeds: expected seeds from 0 on")
        _no_value_twice([*map(str, sweep.seeds)], f"{place}seeds")
    if "seed" in paths:
        raise ScenarioError(
            f"{place}seed: is swept by 'seeds', not by a list of values; write --seeds 1,2,5, or 'seeds: [1, 2, 5]'"
        )
    if isinstance(sweep.seeds, int) and sweep.seeds < 1:
        raise ScenarioError(f"{place}seeds: {sweep.seeds} is outside [1, …]")
    seeds = sweep.seeds if isinstance(sweep.seeds, int) else len(sweep.seeds or (None,))
    if seeds * math.prod(len(axis.steps) for axis in sweep.axes) > MAX_POINTS:
        raise ScenarioError(f"{place}the sweep has more than {MAX_POINTS} points")
    return sweep


def _no_path_twice(paths: Sequence[str], place: str = "") -> None:
    places = [*map(completed, paths)]
    if twice := sorted({path for path, place_ in zip(paths, places, strict=True) if places.count(place_) > 1}):
        raise ScenarioError(f"{place}{twice[0]}: is swept twice; keep one")


def _no_value_twice(values: Sequence[str], place: str) -> None:
    """Refuse equal values: they give the same run, which would count as two samples."""
    if twice := [value for value, count in Counter(values).items() if count > 1]:
        raise ScenarioError(f"{place}: {twice[0]} is given twice; keep one")


def _option(text: str) -> tuple[str, list[str]]:
    path, equals, values = text.partition("=")
    if not equals or not path.strip():
        raise ScenarioError(f"--set {text}: not a setting (write path=value or path=value,value)")
    return path.strip(), split_values(values)


def split_values(text: str) -> list[str]:
    """Split at commas outside brackets and quotes."""
    pieces = [""]
    depth = 0
    quote = ""
    escaped = False
    for character in text:
        if quote:
            quote = "" if character == quote and not escaped else quote
            escaped = quote == '"' and character == "\\" and not escaped
        elif character in "'\"":
            quote = character
        depth += 0 if quote else (character in "[{(") - (character in ")}]")
        if character == "," and not quote and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += character
    return [piece.strip() for piece in pieces]


def read_techniques(path: Path) -> Techniques:
    """Return all techniques of a file, in its order. Raise ``ScenarioError``."""
    root = read_document(path)
    if not isinstance(root, Mapping) or not root.entries:
        raise ScenarioError(f"{path}: expected a mapping, each line NAME: {{path: value, …}}")
    found: Techniques = {}
    for name, settings in root.entries.items():
        if not isinstance(settings, Mapping):
            raise ScenarioError(f"{root.keys[name]}: {name}: expected {{path: value, …}}")
        found[name] = {setting: flow(value) for setting, value in settings.entries.items()}
    return found


def from_texts(texts: Sequence[str]) -> Techniques:
    """Return the techniques of ``NAME:PATH=VALUE;…`` texts. Raise ``ScenarioError``."""
    found: Techniques = {}
    for text in texts:
        name, _, settings = text.partition(":")
        if name.strip() in found:
            raise ScenarioError(f"{text}: there is a technique '{name.strip()}' already (give it another name)")
        found[name.strip()] = settings_of(settings.split(";"))
    return found


def settings_of(texts: Sequence[str]) -> dict[str, str]:
    """Return the settings of ``PATH=VALUE`` texts, without empty ones. Raise ``ScenarioError``."""
    found: dict[str, str] = {}
    for text in filter(None, map(str.strip, texts)):
        path, equals, value = text.partition("=")
        if not equals or not path.strip():
            raise ScenarioError(f"{text}: not a setting (write path=value)")
        if path.strip() in found:
            raise ScenarioError(f"{text}: {path.strip()} is set already (keep one of them)")
        found[path.strip()] = value.strip()
    return found
