"""The section ``workload``: what runs instead of a model and data by name.

``{script: FILE}`` trains through the testbed's servers; ``{command: …}`` starts a user's program on every worker.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationInfo
from pydantic_core import PydanticCustomError

from testbed.axes import sha256_of
from testbed.placeholders import PLACEHOLDERS, unknown
from testbed.scenario.reading.commands import ARGUMENT, COMMAND
from testbed.scenario.reading.files import allows_code, beside
from testbed.scenario.reading.quantities import DURATION, TEXT, integer, is_null, one_of, text_of
from testbed.scenario.reading.section import Section
from testbed.scenario.reading.suggest import suggestion
from testbed.scenario.reading.violations import Violation, raise_found
from testbed.scenario.sections.program import with_program, without_sections

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OWN_OF_SCRIPTS = ("model", "data", "split", "batch", "compute", "target_accuracy")


class Workload(Section):
    """A user's own training code, or any program, instead of a model and data by name."""

    script: Annotated[str | None, TEXT] = None
    """A Python file in or below the scenario's folder, or with its whole path where the scenario may name code; see
    testbed/kvstore for what it may call."""
    command: Annotated[tuple[str, ...], COMMAND] = ()
    """A program and its arguments, as a list or as a shell would read it; one process per worker, with the variables
    that torchrun sets. Placeholders such as {rank} are replaced; docs/programs.md lists them."""
    first: Annotated[tuple[str, ...], COMMAND] = ()
    """The command of the first worker, if it differs: a server, or a launcher that starts the other processes."""
    per: Annotated[str, one_of("worker", "host")] = "worker"
    """worker: every worker is a host of its own. host: a data centre is one host, with one process."""
    ends: Annotated[str, one_of("all", "first", "others")] = "all"
    """Whose end ends the run: that of all processes, of the first, or of all others. The rest is then stopped."""
    listens: Annotated[int | None, integer(1, 65_535)] = None
    """TCP port of the first worker; the others start when something listens on it."""
    env: dict[str, Annotated[str, ARGUMENT]] = Field(default_factory=dict)
    """Environment variables."""
    cwd: Annotated[str | None, ARGUMENT] = None
    """Working directory, relative to the scenario's folder, which is the default."""
    timeout: Annotated[float, DURATION] = 3600.0
    """The longest run."""
    metrics: Annotated[str | None, ARGUMENT] = None
    """stdout, or a file: JSON lines of the program with 'step', and 'loss', 'accuracy' or 'samples'."""
    sha256: Annotated[str | None, TEXT] = None
    """Of the files that the commands name, as they were when the scenario was read; not to be written by hand."""

    @property
    def is_program(self) -> bool:
        return bool(self.command or self.first)

    def _violations(self) -> Iterable[Violation]:
        return (*_what(self), *_without_effect(self), *_texts(self))


def _what(workload: Workload) -> Iterator[Violation]:
    if workload.script is None and not workload.is_program:
        yield Violation((), "has neither 'script' nor 'command'", "write 'command: python train.py'")
    if workload.script is not None and workload.is_program:
        yield Violation(("script",), "stands beside a command", "remove one of the two")
    if workload.ends == "others" and not workload.command:
        yield Violation(("ends",), "no process but the first is started", "write 'command' for the others")


def _without_effect(workload: Workload) -> Iterator[Violation]:
    of_programs = workload.other_than_default("per", "ends", "listens", "env", "cwd", "timeout", "metrics")
    for name in of_programs if workload.script is not None and not workload.is_program else ():
        yield Violation((name,), "has no effect on 'script'", "remove it, or write 'command: …'")
    if workload.listens is not None and workload.is_program and not workload.command:
        yield Violation(("listens",), "no process waits for the first", "remove it, or write 'command' for the others")


def _texts(workload: Workload) -> Iterator[Violation]:
    for name in workload.env:
        if not _VARIABLE.fullmatch(name):
            yield Violation(("env", name), "is no name of an environment variable", "letters, digits and '_' only")
    for key, texts in (("command", workload.command), ("first", workload.first), ("env", workload.env.values())):
        for word in (word for text in texts for word in unknown(text)):
            if hint := suggestion(word, PLACEHOLDERS):
                yield Violation((key,), f"'{{{word}}}' is no placeholder", hint)


def with_workload(data: Any, info: ValidationInfo) -> Any:
    """Return the scenario's tree with ``training`` as its workload has it; unchanged without a workload."""
    workload = data.get("workload") if isinstance(data, dict) else None
    if isinstance(workload, Workload):
        workload = workload.resolved()
    if not isinstance(workload, dict):
        return data
    data = {**data, "workload": workload}
    if not is_null(workload.get("script")) and isinstance(data.get("training", {}), dict):
        data = _with_script(data, info)
    if not all(is_null(workload.get(key)) for key in ("command", "first")):
        data = with_program(data, info)
    return data


def _with_script(data: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
    """Return the tree with the script as model and data. Raise a refusal for what the script brings itself."""
    training = data.get("training", {})
    workload = data["workload"]
    raise_found(
        Violation(("training", key), "has no effect beside 'workload'", "the script brings its own; remove it")
        for key in _OWN_OF_SCRIPTS
        if key in training
    )
    raise_found(
        [Violation(("optimizer",), "has no effect beside 'workload'", "remove it")] if "optimizer" in data else []
    )
    path = _script(text_of(workload.get("script")), info)
    model = {"kind": "script", "file": str(path), "sha256": sha256_of(path)}
    training = {**training, "model": model, "data": {"kind": "script"}}
    return {**data, "workload": dict(workload, script=str(path)), "training": training}


def _script(text: str, info: ValidationInfo) -> Path:
    """Return the script's path. One that is written whole, as in a resolved scenario, is code from anywhere."""
    path = Path(text)
    if not path.is_absolute():
        try:
            path = beside(text, info)
        except PydanticCustomError as error:  # which has no place here
            told = error.context or {}
            raise_found([Violation(("workload", "script"), told["problem"], told["hint"])])
    elif not allows_code(info):
        problem = f"'{text}' is a whole path, and this file is not at or below the working directory"
        raise_found([Violation(("workload", "script"), problem, "read that script first, then give --allow-code")])
    if not path.is_file():
        raise_found([Violation(("workload", "script"), f"there is no file {path.name} beside the scenario")])
    return path


def without_own(resolved: dict[str, Any], is_program: bool) -> dict[str, Any]:
    """Return a resolved scenario without what a script brings itself, or what has no effect on a program."""
    if is_program:
        return without_sections(resolved)
    training = {key: value for key, value in resolved["training"].items() if key not in _OWN_OF_SCRIPTS}
    return {key: training if key == "training" else value for key, value in resolved.items() if key != "optimizer"}
