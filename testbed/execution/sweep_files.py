"""Files of the user that a Plan names: their digests, and their copies for machines without them.

Data sets, models and code are single files or folders. A script or command may import or start files beside it, so the
whole folder of the script, or the working directory of the command, is sent.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from testbed.axes import CodeFile, installed, options_of, sha256_of
from testbed.errors import CapabilityError, ScenarioError
from testbed.plan.code import AXES
from testbed.plan.model import Plan
from testbed.settings.job import Choice
from testbed.training.options.declarations import SCRIPT

SENT_LIMIT_BYTES = 100_000_000
"""Larger data is not sent: the machines must have it. A larger folder of a script or command is refused.
Ray sends 500 MB in all."""
_SOURCES = frozenset((".py", ".pyx", ".sh", ".go", ".java", ".jl", ".js", ".lua", ".rs"))
_LEFT_OUT = frozenset({"runs", "sweeps", "figures", "validation", "__pycache__", "node_modules", "venv"})


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file or folder that a Plan names by ``text``. ``sent``: the path to send, which may be its folder."""

    text: str
    sent: Path
    is_code_folder: bool = False


def named_files(plan: Plan) -> list[NamedFile]:
    """Return the files and folders that a run of the Plan reads, without those of installed packages."""
    found = [*_of_options(plan), *(NamedFile(file.path, Path(file.path)) for file in plan.code if _is_file(file))]
    if plan.program:
        found.append(NamedFile(plan.program.cwd, Path(plan.program.cwd), is_code_folder=True))
    return list({each.text: each for each in found}.values())


def data_files(plan: Plan) -> list[Path]:
    """Return the files and folders of data that a run of the Plan reads. (The Plan itself has hashes of its code.)"""
    return [each.sent for each in _of_options(plan) if not each.is_code_folder]


def code_folders(plan: Plan) -> list[Path]:
    """Return the folders of scripts and commands, which may import or start files there."""
    return [each.sent for each in named_files(plan) if each.is_code_folder]


def source_digest(folder: Path) -> str:
    """Return the SHA-256 of the sources in a folder of code; empty if a file cannot be read.

    All files with suffixes of ``_SOURCES`` count, whether used or not. Other files do not: runs and compilers write
    files there, which must not change the version.
    """
    digest = hashlib.sha256()
    try:
        for each in _below(folder, is_code_folder=True):
            if each.suffix in _SOURCES and each.is_file():
                _add(digest, each, folder)
    except OSError:  # the run will say so
        return ""
    return digest.hexdigest()


def content_digest(path: Path) -> str:
    """Return the SHA-256 of a file, or of the names and contents in a folder; empty if a file cannot be read."""
    digest = hashlib.sha256()
    try:
        for each in _followed(path):
            if each.is_file():
                _add(digest, each, path)
    except OSError:  # the run will say so
        return ""
    return digest.hexdigest()


def _add(digest: hashlib._Hash, path: Path, folder: Path) -> None:
    with path.open("rb") as file:
        content = hashlib.file_digest(file, "sha256").hexdigest()
    digest.update(os.fsencode(path.relative_to(folder)) + f"\0{content}\0".encode())  # a name need not be UTF-8


def _followed(path: Path, above: frozenset[Path] = frozenset()) -> Iterator[Path]:
    """Yield a path and, if it is a folder, all paths below it. Follow links, but not to a folder in ``above``."""
    yield path
    if path.is_dir() and (folder := path.resolve()) not in above:
        for each in sorted(path.iterdir()):
            yield from _followed(each, above | {folder})


def _of_options(plan: Plan) -> Iterator[NamedFile]:
    for _, axis, choice in (*_choices_of(plan.training), *_choices_of(plan.technique)):
        for option, kind in _path_options(axis, choice.kind).items():
            if text := choice.options.get(option):
                path = Path(text).expanduser()
                yield NamedFile(text, path.parent if kind == SCRIPT else path, kind == SCRIPT)


def _choices_of(part: Any) -> Iterator[tuple[str, str, Choice]]:
    """Yield field, axis and choice for each field of the training or technique that chooses a kind of an axis."""
    for each in fields(part):
        axis = each.name.removesuffix("_tier1").removesuffix("_tier2")
        value = getattr(part, each.name)
        if axis in AXES and isinstance(value, Choice):
            yield each.name, axis, value


def _path_options(axis: str, kind: str) -> dict[str, str]:
    """Return the options that name a path, with what it is: ``file``, ``folder`` or ``script``."""
    options = fields(options_of(AXES[axis][kind]))
    return {each.name: each.metadata["path"] for each in options if "path" in each.metadata}


def _is_file(file: CodeFile) -> bool:
    return file.kind.rpartition(":")[0].endswith(".py")


# ---- on the way to another machine ----------------------------------------------------------------------------------


def stage(files: Iterable[NamedFile], folder: Path) -> dict[str, str]:
    """Copy files into a folder that Ray sends; return the place of each in the folder, by the text that names it.

    Data of more than ``SENT_LIMIT_BYTES`` is left out: the machines must have it at the same path.

    Raise ``ScenarioError`` if a file cannot be read, or the folder of a script or command is too large.
    """
    places: dict[Path, Path] = {}
    found = {}
    for file in files:
        if not file.is_code_folder and _size_bytes(file.sent) > SENT_LIMIT_BYTES:
            continue
        if file.sent not in places:
            places[file.sent] = Path(str(len(places)), file.sent.name or "content")
            _copy(file, folder / places[file.sent])
        named = Path(file.text).expanduser()
        found[file.text] = str(places[file.sent] / (named.name if named != file.sent else ""))
    return found


def _size_bytes(path: Path) -> int:
    return sum(each.stat().st_size for each in _followed(path) if each.is_file())


def _copy(file: NamedFile, to: Path) -> None:
    to.parent.mkdir(parents=True)
    try:
        if not file.sent.is_dir():
            shutil.copyfile(file.sent, to)
            return
        if file.is_code_folder:
            _refuse_large(file.sent)
        shutil.copytree(file.sent, to, ignore=_left_out if file.is_code_folder else None, ignore_dangling_symlinks=True)
    except (OSError, shutil.Error) as error:
        raise ScenarioError(f"{file.sent}: cannot be sent to the machines of a cluster ({error})") from error


def _refuse_large(folder: Path) -> None:
    size = 0
    for each in _below(folder, is_code_folder=True):
        size += each.stat().st_size if each.is_file() else 0
        if size > SENT_LIMIT_BYTES:
            raise ScenarioError(
                f"{folder}: the folder of a script or command is sent to the machines of a cluster, but this one has "
                f"more than {SENT_LIMIT_BYTES // 1_000_000} MB; move the script into a folder of its own"
            )


def _below(path: Path, is_code_folder: bool) -> Iterator[Path]:
    yield path
    for each in sorted(path.iterdir()) if path.is_dir() else ():
        if not (is_code_folder and _is_left_out(each.name)):
            yield from _below(each, is_code_folder) if not each.is_symlink() else [each]


def _is_left_out(name: str) -> bool:
    return name in _LEFT_OUT or name.startswith(".")


def _left_out(_: str, names: list[str]) -> list[str]:
    return [name for name in names if _is_left_out(name)]


def with_copies(plan: Plan, copies: Mapping[str, str]) -> Plan:
    """Return the Plan with paths of this machine: of ``copies``, by the original path, and of installed packages."""
    technique = _renamed(plan.technique, copies)
    training = _renamed(plan.training, copies)
    program = plan.program
    if program:

        def own(words: Iterable[str], folder: str = program.cwd) -> tuple[str, ...]:
            return tuple(_below_copy(word, folder, copies) for word in words)

        env = dict(zip(program.env, own(program.env.values()), strict=True))
        program = replace(
            program, command=own(program.command), first=own(program.first), env=env, cwd=copies[program.cwd]
        )
    code = tuple(_own_code(file, copies) for file in plan.code)
    return replace(plan, technique=technique, training=training, program=program, code=code)


def _renamed(part: Any, copies: Mapping[str, str]) -> Any:
    """Return the training or technique with the paths of copies in its choices."""
    changed = {}
    for name, axis, choice in _choices_of(part):
        place, colon, class_name = choice.kind.rpartition(":")
        kind = f"{copies[place]}:{class_name}" if colon and place in copies else choice.kind
        paths = {
            option: copies[text]
            for option in _path_options(axis, kind)
            if (text := choice.options.get(option, "")) in copies
        }
        changed[name] = replace(choice, kind=kind, options={**choice.options, **paths})
    return replace(part, **changed)


def _below_copy(text: str, folder: str, copies: Mapping[str, str]) -> str:
    return copies[folder] + text[len(folder) :] if text == folder or text.startswith(folder + "/") else text


def _own_code(file: CodeFile, copies: Mapping[str, str]) -> CodeFile:
    if _is_file(file):
        kind = copies[file.path] + ":" + file.kind.rpartition(":")[2]
        return replace(file, kind=kind, path=copies[file.path])
    point = installed(file.axis).get(file.kind)
    module = (point.value if point else file.kind).rpartition(":")[0]
    try:
        found = importlib.util.find_spec(module)
    except ImportError:
        found = None
    if found is None or found.origin is None:
        raise CapabilityError(
            f"the module {module} of '{file.kind}' is not installed there; install it, or name a file"
        )
    if sha256_of(Path(found.origin)) != file.sha256:
        raise CapabilityError(f"{found.origin} differs from {file.path}; install the same version of it")
    return replace(file, path=found.origin)
