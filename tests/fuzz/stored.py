"""Checkpoints and run directories: spoilt files, and forged ones whose digests are right."""

from __future__ import annotations

import contextlib
import copy
import gzip
import hashlib
import io
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import torch
from matplotlib.figure import Figure

from testbed import launch
from testbed.cli.main import build_parser, unforeseen
from testbed.display.progress import choose
from testbed.engine.checkpoint import Checkpoint
from testbed.errors import TestbedError
from testbed.execution import host, resume
from testbed.plan.build import build_plan
from testbed.plan.model import Plan
from testbed.results import summary
from testbed.scenario import load
from tests.fuzz.texts import flipped, shortened
from tests.fuzz.trial import Input, no_regular_file

QUICKSTART = Path(__file__).parents[2] / "scenarios" / "quickstart.yaml"
_SETTINGS = (
    "training.rounds=3",
    "training.evaluate_every=1",
    "checkpoint={every: 1}",
    "training.model={kind: mlp, layers: 1, hidden: 8}",
)
_ANYTHING = (
    None,
    True,
    False,
    -1,
    0,
    1,
    2**63,
    1e308,
    "",
    "x" * 3000,
    [],
    {},
    [[]],
    {"a": 1},
    "nan",
    "east/worker0",
    -1e-300,
    ["a"],
    [1, 2],
    [None],
    "\u0663",
    3.5,
)


@cache
def stored_run() -> tuple[Plan, Path]:
    """Return a finished run with checkpoints, made once; forked processes have it, too."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-run-"))
    scenario = load(QUICKSTART, _SETTINGS)
    plan = build_plan(scenario, "simulate")
    run = launch.prepare(scenario, plan, out=folder / "run", text=QUICKSTART.read_bytes())
    display = choose(plan, as_json=False, quiet=True)
    outcome = launch.train(plan, run, display, execute=launch.in_this_process)
    assert outcome.status == "done", outcome
    launch.finish(run, plan, outcome, started="", duration_s=lambda: 1.0)
    return plan, folder / "run"


def forget() -> None:
    """Remove what ``stored_run`` has made."""
    if stored_run.cache_info().currsize:
        shutil.rmtree(stored_run()[1].parent, ignore_errors=True)
        stored_run.cache_clear()


# ---- checkpoints ----------------------------------------------------------------------------------------------------


def checkpoint(chance: Random, folder: Path) -> Input:
    """Checkpoints of which one or all are spoilt: what is taken is what was written, of the newest that is intact."""
    plan, run = stored_run()
    copy = folder / "run"
    shutil.copytree(run / resume.FOLDER, copy / resume.FOLDER)
    found = sorted((copy / resume.FOLDER).glob("ckpt-*"))
    for each in found if chance.random() < 0.5 else found[-1:]:
        _spoil_checkpoint(each, chance)
    intact = {path.name: _sha256(_stored_states(path)) for path in (run / resume.FOLDER).glob("ckpt-*")}

    def read() -> Checkpoint | None:
        resume.find(copy)
        files = resume.checkpoint_files(plan, copy, lambda event: None)
        assert files is not None
        return files.resumed

    def check(taken: Checkpoint | None) -> None:
        assert taken is not None, "checkpoints that are all spoilt were passed over without a word"
        if (
            taken.path.name in intact
            and (taken.path / "manifest.json").read_bytes()
            == (run / resume.FOLDER / taken.path.name / "manifest.json").read_bytes()
        ):
            assert _sha256(taken.states) == intact[taken.path.name], "another state than was written was taken"

    return Input(read, (str(copy),), check=check)


def _spoil_checkpoint(path: Path, chance: Random) -> None:
    files = sorted(path.iterdir())
    file = chance.choice([*files, *[each for each in files if each.name == "manifest.json"] * 4])
    how = chance.random()
    if how < 0.1:
        file.unlink()
        no_regular_file(file, chance.randrange(6))
    elif how < 0.15:
        shutil.rmtree(path)
        no_regular_file(path, chance.randrange(6))
    elif file.suffix == ".json" and how < 0.8:
        about = json.loads(file.read_text())
        change_json(about, chance)
        file.write_text(json.dumps(about))
    elif how < 0.9:
        file.write_bytes(chance.choice((flipped, shortened))(file.read_bytes(), chance))
    else:
        forge(path, chance)


def _stored_states(path: Path) -> dict[str, Any]:
    about = json.loads((path / "manifest.json").read_text())
    return {about["nodes"][name]: torch.load(path / name, weights_only=True) for name in about["files"]}


def _sha256(states: Mapping[str, Any]) -> str:
    buffer = io.BytesIO()
    for node, state in sorted(states.items()):
        buffer.write(node.encode())
        torch.save(dict(sorted(state.items())), buffer)
    return hashlib.sha256(buffer.getvalue()).hexdigest()


def forge(path: Path, chance: Random) -> None:
    """Change a node's state, and let the manifest have its digest: a checkpoint of a stranger."""
    about = json.loads((path / "manifest.json").read_text())
    name = chance.choice(sorted(about["files"]))
    state = torch.load(path / name, weights_only=True)
    if state:
        key = chance.choice(sorted(state))
        how = chance.randrange(5)
        if how == 0:
            del state[key]
        elif how == 1:
            state[chance.choice(("x", key + "x", "model/0", ""))] = state.pop(key)
        elif how == 2 and isinstance(state[key], torch.Tensor):
            state[key] = chance.choice(
                (
                    state[key].flatten()[:1],
                    state[key].to(torch.float64),
                    torch.zeros(0),
                    torch.full((3, 3), torch.nan),
                    torch.zeros(1, dtype=torch.int64),
                    torch.tensor(2.0),
                )
            )
        else:
            state[key] = _anything(chance)
    buffer = io.BytesIO()
    torch.save(state if chance.random() < 0.95 else _anything(chance), buffer)
    (path / name).write_bytes(buffer.getvalue())
    about["files"][name] = hashlib.sha256(buffer.getvalue()).hexdigest()
    (path / "manifest.json").write_text(json.dumps(about))


def resumed(chance: Random, folder: Path) -> Input:
    """A simulation that goes on from a forged checkpoint: it ends well, or says which file is wrong."""
    plan, run = stored_run()
    copy = folder / "run"
    shutil.copytree(run / resume.FOLDER, copy / resume.FOLDER)
    for each in sorted((copy / resume.FOLDER).glob("ckpt-*")):
        forge(each, chance)

    def read() -> None:
        with contextlib.redirect_stderr(io.StringIO()) as told:
            outcome = host.attempt(plan, copy, lambda event: None)
        if "an error in testbed itself" in outcome.message:
            raise RuntimeError(f"{outcome.message}\n{told.getvalue()[-600:]}")
        if outcome.status != "done":
            raise TestbedError(outcome.message)

    return Input(read, (resume.FOLDER,))


# ---- run directories ------------------------------------------------------------------------------------------------

_COMMANDS: tuple[tuple[str, ...], ...] = (
    ("show", "{run}"),
    ("show", "{run}"),
    ("show", "{run}", "--json"),
    ("events", "{run}"),
    ("compare", "{run}", "{good}"),
    ("report", "{run}", "--out", "{out}"),
    ("export", "{run}", "--out", "{out}"),
    ("plan", "{run}/scenario.yaml"),
    ("validate", "{run}/resolved.yaml"),
    ("run", "{run}/resolved.yaml", "--on", "simulate", "--out", "{run}", "--quiet"),
    ("run", "{scenario}", "--on", "simulate", "--out", "{out}/run", "--resume", "{run}", "--quiet"),
)


def directory(chance: Random, folder: Path) -> Input:
    """A run directory with one to three spoilt files, in a command that reads it."""
    _, good = stored_run()
    copy = folder / "run"
    shutil.copytree(good, copy)
    if chance.random() < 0.5:
        shutil.rmtree(copy / "tables")
    for _ in range(chance.randint(1, 3)):
        files = [path for path in sorted(copy.rglob("*")) if path.is_file() and not path.is_symlink()]
        small = [path for path in files if path.parent == copy]
        _spoil_file(chance.choice(small if chance.random() < 0.7 else files), chance)
    command = chance.choice(_COMMANDS)
    places = {"run": copy, "good": good, "out": folder / "out", "scenario": QUICKSTART}
    arguments = [word.format(**places) for word in command]

    return Input(lambda: _call(arguments), (str(copy), str(folder / "out")))


def _call(arguments: list[str]) -> None:
    """Execute a command up to where it would train; of ``main`` only the words for an unusable place are taken."""
    train, render = launch.train, Figure.savefig

    def trained(plan: Any, run: Any, *more: Any, **options: Any) -> Any:
        raise TestbedError(f"{run.path}: taken, and not run")

    launch.train = trained
    Figure.savefig = _not_rendered  # seconds, whatever is in the files
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            parsed = build_parser().parse_args(arguments)
            parsed.execute(parsed)
    except OSError as error:
        message, code = unforeseen(error)
        if code == 1:
            raise
        raise TestbedError(message) from error
    finally:
        launch.train, Figure.savefig = train, render


def _not_rendered(figure: Figure, file: Any, **options: Any) -> None:
    if isinstance(file, Path):
        file.write_bytes(b"")
    elif options.get("format") == "svg":
        file.write("<svg></svg>" if isinstance(file, io.StringIO) else b"<svg></svg>")


def _spoil_file(file: Path, chance: Random) -> None:
    how = chance.random()
    if how < 0.08:
        file.unlink()
        no_regular_file(file, chance.randrange(6))
    elif file.suffix == ".json" and how < 0.75:
        try:
            content = json.loads(file.read_bytes())
        except ValueError:
            content = {}
        change_json(content, chance)
        if file.name == "result.json" and isinstance(content, dict) and chance.random() < 0.9:
            content["content_sha256"] = summary._content_sha256(content)
        file.write_text(json.dumps(content), encoding="utf-8")
    elif file.suffix == ".gz" and how < 0.8:
        lines = gzip.decompress(file.read_bytes()).splitlines() if file.stat().st_size else [b"{}"]
        at = chance.randrange(len(lines))
        try:
            event = json.loads(lines[at])
        except ValueError:
            event = {}
        change_json(event, chance)
        lines[at] = json.dumps(event).encode()
        file.write_bytes(gzip.compress(b"\n".join(lines) + b"\n"))
    else:
        file.write_bytes(chance.choice((flipped, shortened))(file.read_bytes(), chance))


def change_json(content: Any, chance: Random) -> None:
    """Change one to three values, or remove or add some."""
    for _ in range(chance.randint(1, 3)):
        places = list(_places(content))
        if not places:
            return
        holder, key = chance.choice(places)
        if chance.random() < 0.25 and isinstance(holder, dict):
            del holder[key]
        elif chance.random() < 0.1 and isinstance(holder, list):
            holder.append(_anything(chance))
        else:
            holder[key] = _anything(chance)


def _anything(chance: Random) -> Any:
    """Return a value of its own: one that two inputs shared would change with both."""
    return copy.deepcopy(chance.choice(_ANYTHING))


def _places(content: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every holder and key; not by recursion, as what was put in may be nested a thousand levels deep."""
    holders = [content]
    for holder in holders:
        entries = holder.items() if isinstance(holder, dict) else enumerate(holder) if isinstance(holder, list) else ()
        for key, value in entries:
            holders.append(value)
            yield holder, key


def clear(folder: Path) -> None:
    """Empty a folder that may hold anything."""
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink()
