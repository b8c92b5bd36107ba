"""Files of the user that a Plan names, for machines that lack them: packed, sent by content, and renamed in the Plan.

Data sets, models and code are files or folders of their own. A script and a command may import what is beside them, so
the folder of the script, or the working directory, is sent.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import os
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from testbed.axes import CodeFile, installed, options_of, sha256_of
from testbed.errors import CapabilityError, ScenarioError
from testbed.plan.code import AXES
from testbed.plan.model import Choice, Plan
from testbed.training.options.declarations import SCRIPT

FOLDER_LIMIT_BYTES = 100_000_000
"""Of the folder of a script or command, which is sent whole."""
_SOURCES = frozenset((".py", ".pyx", ".sh", ".go", ".java", ".jl", ".js", ".lua", ".rs"))
_LEFT_OUT = frozenset({"runs", "sweeps", "figures", "validation", "__pycache__", "node_modules", "venv"})


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file or folder that a Plan names by ``text``. ``sent`` is what is packed: itself, or the folder it is in."""

    text: str
    sent: Path
    is_code_folder: bool = False


@dataclass(frozen=True, slots=True)
class SentFile:
    """Where a machine finds the file: ``inside`` what it gets by the digest ``sha256`` of its packed content."""

    sha256: str
    inside: str


def named_files(plan: Plan) -> list[NamedFile]:
    """Return the files and folders that a run of the Plan reads. Those of installed packages are left out."""
    found = [*_of_options(plan), *(NamedFile(file.path, Path(file.path)) for file in plan.code if _is_file(file))]
    if plan.program:
        found.append(NamedFile(plan.program.cwd, Path(plan.program.cwd), is_code_folder=True))
    return list({each.text: each for each in found}.values())


def data_files(plan: Plan) -> list[Path]:
    """Return the files and folders of data that a run of the Plan reads; the Plan has the hashes of its code."""
    return [each.sent for each in _of_options(plan) if not each.is_code_folder]


def code_folders(plan: Plan) -> list[Path]:
    """Return the folders of scripts and commands, which may import or start what is in them."""
    return [each.sent for each in named_files(plan) if each.is_code_folder]


def source_digest(folder: Path) -> str:
    """Return the SHA-256 of the sources in a folder of code; of nothing where one cannot be read.

    Only files of ``_SOURCES`` count, used or not: what runs and compilers write there must not make another version.
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
    """Return the SHA-256 of a file, or of the names and contents in a folder; of nothing where it cannot be read."""
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
    """Yield a file, or a folder and all that a reader finds below it: through links, except to a folder ``above``."""
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
    """Yield the fields of the training or technique that choose a kind of an axis: field, axis, choice."""
    for each in fields(part):
        axis, value = each.name.removesuffix("_tier1").removesuffix("_tier2"), getattr(part, each.name)
        if axis in AXES and isinstance(value, Choice):
            yield each.name, axis, value


def _path_options(axis: str, kind: str) -> dict[str, str]:
    """Return the options that name a file or folder, and what: ``file``, ``folder`` or ``script``."""
    options = fields(options_of(AXES[axis][kind]))
    return {each.name: each.metadata["path"] for each in options if "path" in each.metadata}


def _is_file(file: CodeFile) -> bool:
    return file.kind.rpartition(":")[0].endswith(".py")


# ---- packing, where the command is ----------------------------------------------------------------------------------


def pack(file: NamedFile) -> tuple[SentFile, bytes]:
    """Return the content, and where the file is in it. Raise ``ScenarioError`` if it cannot be read or is too large."""
    content = _packed(file.sent, file.is_code_folder)
    inside = Path(_top(file.sent), *([Path(file.text).name] if file.sent != Path(file.text).expanduser() else []))
    return SentFile(hashlib.sha256(content).hexdigest(), str(inside)), content


@cache
def _packed(path: Path, is_code_folder: bool) -> bytes:
    """Return a tar archive that depends on names, modes and contents alone."""
    stream, root = io.BytesIO(), path.resolve()
    try:
        with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for each in _below(root, is_code_folder):
                archive.dereference = _leads_outside(each, root)
                archive.add(each, _top(path) / each.relative_to(root), recursive=False, filter=_anonymous)
                if is_code_folder and stream.tell() > FOLDER_LIMIT_BYTES:
                    raise ScenarioError(
                        f"{path}: the folder of a script or command is sent to the machines of a cluster, and this one "
                        f"has more than {FOLDER_LIMIT_BYTES // 1_000_000} MB; move the script into a folder of its own"
                    )
    except OSError as error:
        raise ScenarioError(f"{path}: cannot be sent to the machines of a cluster ({error.strerror})") from error
    return stream.getvalue()


def _top(path: Path) -> Path:
    """Return the name of a packed file or folder: the suffix of a file of code says what it is."""
    return Path(path.name or "content")


def _below(path: Path, is_code_folder: bool) -> Iterator[Path]:
    yield path
    for each in sorted(path.iterdir()) if path.is_dir() else ():
        if not (is_code_folder and (each.name in _LEFT_OUT or each.name.startswith("."))):
            yield from _below(each, is_code_folder) if not each.is_symlink() else [each]


def _leads_outside(path: Path, root: Path) -> bool:
    """Return whether ``path`` is a link that would lead nowhere on another machine. Refuse such links to folders."""
    if not path.is_symlink() or not (path.readlink().is_absolute() or not path.resolve().is_relative_to(root)):
        return False
    if path.is_dir():
        raise ScenarioError(
            f"{path}: a link to a folder elsewhere, which the machines of a cluster would not get; put the folder "
            "itself there"
        )
    return True


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = 0, 0, 0, "", ""
    return entry


# ---- on the machine that runs the point -----------------------------------------------------------------------------


def unpack(content: bytes, folder: Path) -> None:
    """Write what was packed into a folder, which may be there."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        archive.extractall(folder, filter="data")


def copy_of(file: SentFile, store: Path) -> str:
    """Return the path of a file whose content was unpacked below ``store``."""
    return str(store / file.sha256 / file.inside)


def with_copies(plan: Plan, copies: Mapping[str, str]) -> Plan:
    """Return a Plan that names ``copies`` of files, by the text that names the file, and this machine's packages."""
    technique, training, program = _renamed(plan.technique, copies), _renamed(plan.training, copies), plan.program
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
    """Return the training or technique with each choice by its copies."""
    changed = {}
    for name, axis, choice in _choices_of(part):
        place, colon, class_name = choice.kind.rpartition(":")
        kind = f"{copies[place]}:{class_name}" if colon and place in copies else choice.kind
        paths = {option: copies[choice.options[option]] for option in _path_options(axis, kind)
                 if choice.options.get(option)}  # fmt: skip
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
