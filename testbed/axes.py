"""An axis of a scenario: the techniques that may stand on it, and where they come from.

A *kind* names a technique. It is one of

* a shipped name from the axis' literal table (``fsa``),
* the name of an installed entry point in the group ``testbed.<axis>`` (``[project.entry-points."testbed.sync"]``),
* a dotted path ``my_package.module:Class``,
* a file ``./warm_hfa.py:WarmHfa``; in a Plan always with its absolute path, so that every process finds the same file.

The class states its properties as class attributes and its options as a nested frozen dataclass ``Options`` (or is such
a dataclass itself). Users' code is imported only when its kind is looked up.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import importlib.util
import inspect
import numbers
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar, get_type_hints

from testbed import declaration
from testbed.declaration import limits_of
from testbed.errors import ScenarioError

T = TypeVar("T")
option = declaration.option  # techniques import it from here
_OPTION_TYPES = (bool, int, float, str)
_OPTION_UNITS = ("bytes", "s", "bit/s", "share")


class AxisError(ScenarioError, KeyError):
    """A kind that cannot be used: ``problem`` says why, ``hint`` how to cure it."""

    def __init__(self, problem: str, hint: str = "") -> None:
        self.problem = problem
        self.hint = hint
        super().__init__(f"{problem} ({hint})" if hint else problem)

    __str__ = Exception.__str__


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CodeFile:
    """The file that defines the technique ``kind`` of ``axis``, with the SHA-256 of its content."""

    axis: str
    kind: str
    path: str
    sha256: str


class Axis(Mapping[str, type[T]], Generic[T]):
    """Techniques by kind. Iteration yields shipped kinds, in the order of the table, then installed ones.

    name  name of the axis, as in the entry point group ``testbed.<name>``
    base  base class of users' own techniques, or ``module:Class`` if importing it at once would be slow; empty: the
          axis takes shipped techniques only
    removed  removed kinds, each with the advice what to write instead
    """

    def __init__(
        self,
        name: str,
        shipped: Mapping[str, type[T]],
        base: type[Any] | str = "",
        removed: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.shipped = dict(shipped)
        self._base = base
        self.removed = removed or {}
        self._loaded: dict[str, type[T]] = {}
        self._imported: dict[str, str] = {}  # by users' own kinds: the SHA-256 of the file when it was imported

    def __getitem__(self, kind: str) -> type[T]:
        found = self.shipped.get(kind) or self._loaded.get(kind)
        if found is None:
            found = self._loaded[kind] = self._load(kind)
        return found

    def __iter__(self) -> Iterator[str]:
        yield from self.shipped
        yield from (name for name in installed(self.name) if name not in self.shipped)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, kind: object) -> bool:
        """Whether ``kind`` is shipped or installed, or names code that has already been looked up; imports nothing."""
        return kind in self.shipped or kind in self._loaded or kind in installed(self.name)

    @property
    def is_open(self) -> bool:
        return bool(self._base)

    @property
    def default(self) -> str:
        """The first kind of the table, which applies if a scenario names none."""
        return next(iter(self.shipped))

    def resolve(self, kind: str, folder: Path | None, folder_is: str = "the scenario's folder") -> str:
        """Return ``kind`` as a Plan names it: a file's path, relative to ``folder``, becomes absolute.

        ``folder_is`` names that folder in messages. Import nothing. Raise ``AxisError`` when ``kind`` can be none of
        the four forms, or the file is missing.
        """
        if kind in self.shipped or kind in installed(self.name):
            return kind
        self._refuse_removed(kind)
        place, colon, class_name = kind.rpartition(":")
        if not colon or not self._base:
            raise AxisError(f"'{kind}' is not one of {', '.join(self)}", self.own_class(kind))
        if not place.endswith(".py"):
            if not all(part.isidentifier() for part in [*place.split("."), class_name]):
                raise AxisError(f"'{kind}' is not a dotted path", "write package.module:Class, or FILE.py:Class")
            return kind
        if folder is None and not Path(place).is_absolute():
            raise AxisError(
                f"'{place}' is relative to a scenario file, but there is none",
                "write its absolute path",
            )
        path = ((folder or Path("/")) / place).resolve()
        if not path.is_file():
            raise AxisError(f"{path}: no such file", f"the path is relative to {folder_is}")
        self._loaded.pop(f"{path}:{class_name}", None)  # the file may have been edited since it was imported
        return f"{path}:{class_name}"

    def own_class(self, kind: str) -> str:
        """Return the advice how to name a class, if ``kind`` looks like a file or a dotted path; else an empty text."""
        if not self.is_open or not {".", "/"} & {*kind}:
            return ""
        file = kind if kind.endswith(".py") else "FILE.py"
        return f"name a class by its file, {file}:CLASS; see docs/axes/{self.name}.md"

    def code_of(self, kind: str) -> CodeFile | None:
        """Return the file behind ``kind``, ``None`` for a shipped kind. Imports the code.

        Raise ``AxisError`` if the file has changed since its import, as this process would run the old code.
        """
        if kind in self.shipped:
            return None
        path = _file_of(kind, self[kind])
        sha256 = sha256_of(path)
        if sha256 != self._imported[kind]:
            cure = "load the scenario again" if kind.startswith(str(path)) else "start a new process"
            raise AxisError(f"{path}: has changed since it was imported", cure)
        return CodeFile(axis=self.name, kind=kind, path=str(path), sha256=sha256)

    def options(self, kind: str, values: Mapping[str, Any]) -> Any:
        return options_of(self[kind])(**values)

    def base_class(self) -> type[Any]:
        return import_code(self._base, None) if isinstance(self._base, str) else self._base

    def derives(self, kind: str) -> bool:
        """Return whether the dotted path or file ``kind`` names a class that derives from this axis' base class."""
        found = import_code(kind, None)
        return isinstance(found, type) and issubclass(found, self.base_class())

    def where(self, fits: Callable[[type[T]], object]) -> list[str]:
        """Return the kinds whose class ``fits``, for messages that propose one."""
        return [kind for kind in self if fits(self[kind])]

    def _refuse_removed(self, kind: str) -> None:
        if kind in self.removed:
            raise AxisError(f"'{kind}' was removed", self.removed[kind])

    def _load(self, kind: str) -> type[T]:
        self._refuse_removed(kind)
        found = import_code(kind, installed(self.name).get(kind)) if self._base and isinstance(kind, str) else None
        if found is None:
            raise AxisError(f"'{kind}' is not one of {', '.join(self)}")
        base = self.base_class()
        cure = f"see docs/axes/{self.name}.md"
        if not isinstance(found, type) or not issubclass(found, base):
            raise AxisError(f"'{kind}' is not a class that derives from {base.__module__}.{base.__qualname__}", cure)
        if missing := sorted(getattr(found, "__abstractmethods__", ())):
            raise AxisError(f"'{kind}' does not define {', '.join(missing)}", cure)
        if not dataclasses.is_dataclass(options_of(found)):
            raise AxisError(f"'{kind}' has no dataclass 'Options'", f"add one, empty if need be; {cure}")
        if options_of(found) is not options_of(base) and (problem := _unreadable(options_of(found))):
            raise AxisError(f"'{kind}': option {problem}", cure)
        _outside.add(found.__module__)
        self._imported[kind] = sha256_of(_file_of(kind, found))
        return found


def _unreadable(options: type[Any]) -> str:
    """Return a problem with an option of a user's technique that no scenario could set; empty if there is none."""
    hints = get_type_hints(options)
    for field in dataclasses.fields(options):
        if hints[field.name] not in _OPTION_TYPES:
            names = ", ".join(each.__name__ for each in _OPTION_TYPES)
            return f"'{field.name}' is {inspect.formatannotation(hints[field.name])}; a scenario gives {names}"
        if (unit := field.metadata.get("unit", "s")) not in _OPTION_UNITS:
            return f"'{field.name}' has the unit {unit!r}; a scenario knows {', '.join(_OPTION_UNITS)}"
    return ""


def refuse_values(options: Any) -> None:
    """Raise ``ValueError`` (``NAME: PROBLEM``) if an option has a value that no scenario could set."""
    hints = get_type_hints(type(options))
    for field in dataclasses.fields(options):
        if problem := _problem(hints[field.name], field.metadata, getattr(options, field.name)):
            raise ValueError(f"{field.name}: {problem}")


def _problem(hint: Any, metadata: Mapping[str, Any], value: Any) -> str:
    """Return the problem with an option's value; empty if it is valid. Quantities and files are not checked."""
    if choices := metadata.get("choices"):
        return "" if value in choices else f"{value!r} is not one of {', '.join(map(repr, choices))}"
    if hint is bool:
        return "" if isinstance(value, bool) else f"{value!r} is neither True nor False"
    if hint not in (int, float) or "unit" in metadata:
        return ""
    whole = hint is int
    if isinstance(value, bool) or not isinstance(value, numbers.Integral if whole else numbers.Real):
        return f"{value!r} is not a {'whole ' if whole else ''}number"
    low, high, above = limits_of(hint, metadata)
    if low <= value <= high and not (above and value == low):
        return ""
    return f"{value!r} is not {f'above {low}' if above else f'at least {low}'} and at most {high}"


def options_of(entry: type[Any]) -> Any:
    """Return the options dataclass of an axis' class: its nested ``Options``, or the class itself."""
    return getattr(entry, "Options", entry)


def names_code(kind: str) -> bool:
    """Return whether ``kind`` is a dotted path or a file, rather than a name."""
    return ":" in kind


@cache
def installed(axis: str) -> dict[str, EntryPoint]:
    """Return the entry points of the group ``testbed.<axis>`` by name."""
    return {point.name: point for point in entry_points(group=f"testbed.{axis}")}


def import_code(kind: str, point: EntryPoint | None = None) -> Any:
    """Return the object that ``kind`` names; ``None`` if it is no path. Raise ``AxisError`` if the import fails."""
    place, colon, name = (point.value if point else kind).rpartition(":")
    if not colon:
        return None
    try:
        module = _module_of_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    except AxisError:
        raise
    except (Exception, SystemExit) as error:  # whatever a user's module raises while it is imported
        raise AxisError(
            f"'{kind}' cannot be imported: {_where(error, place)}{type(error).__name__}: {error}"
        ) from error
    try:
        return getattr(module, name)
    except AttributeError:
        raise AxisError(f"'{kind}': {place} defines no '{name}'") from None


class _SourceLoader(SourceFileLoader):
    """Compiles the source each time: cached bytecode is matched by seconds and size, which an edit may not change."""

    def path_stats(self, path: str) -> Mapping[str, Any]:
        raise OSError(f"{path}: no bytecode of it is read or written")


def _module_of_file(path: Path) -> ModuleType:
    """Import a file under a name made from its path and content, so that an edited file becomes a new module.

    Copies in two folders are two modules, as each may read files beside it.
    """
    name = f"testbed_code_{hashlib.sha256(f'{path}:{sha256_of(path)}'.encode()).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path, loader=_SourceLoader(name, str(path)))
    assert spec is not None and spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up while it is being executed
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _file_of(kind: str, entry: type[Any]) -> Path:
    """Return the file of a user's own technique. Raise ``AxisError`` if its module has no file."""
    place = kind.rpartition(":")[0]
    file = place if place.endswith(".py") else getattr(sys.modules[entry.__module__], "__file__", None)
    if file is None:
        raise AxisError(f"'{kind}' is not defined in a file", "define it in one, which every process can import")
    return Path(file)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's content. Raise ``AxisError`` when it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise AxisError(f"{path}: {(error.strerror or str(error)).lower()}") from error


_outside: set[str] = set()  # modules of users' own techniques that have been looked up


def place_in_code(error: BaseException) -> str:
    """Return ``FILE:LINE``, the innermost place of an exception in a user's own technique; empty if there is none."""
    met = [
        f"{frame.f_code.co_filename}:{line}"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__") in _outside
    ]
    return met[-1] if met else ""


def _where(error: BaseException, place: str) -> str:
    """Return ``"line 12: "``, the innermost line of the file itself that raised ``error``."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == place]
    if isinstance(error, SyntaxError) and error.filename == place:
        lines.append(error.lineno)
    return f"line {lines[-1]}: " if lines and lines[-1] else ""
