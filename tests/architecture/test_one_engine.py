"""The roles are written once: nothing in the engine knows, asks, or is rewritten for, the world that it runs in."""

from __future__ import annotations

import ast
import inspect
from functools import cache
from pathlib import Path

import emulation
import testbed.realtime
import testbed.simulation
from testbed.engine import driver, evaluation, inbox, kvworker, membership, scheduler, server, server_exchange, upstream

ROOT = Path(__file__).parents[2]
WORLDS = (testbed.realtime, testbed.simulation, emulation)
ENGINE_MODULES = (driver, evaluation, inbox, kvworker, membership, scheduler, server, server_exchange, upstream)


def engine_classes() -> set[str]:
    return {
        name
        for module in ENGINE_MODULES
        for name, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == module.__name__
    }


@cache
def trees(folder: Path) -> list[tuple[Path, ast.Module]]:
    return [(path, ast.parse(path.read_text(encoding="utf-8"))) for path in sorted(folder.rglob("*.py"))]


def test_no_world_subclasses_a_role() -> None:
    names = engine_classes()
    assert {"RoundDriver", "ServerExchange", "Server", "Scheduler"} <= names
    for package in WORLDS:
        for path, tree in trees(Path(str(package.__file__)).parent):
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    bases = {ast.unparse(base).rsplit(".", 1)[-1] for base in node.bases}
                    assert not bases & names, f"{path}:{node.lineno}: {node.name} subclasses a role"


def test_the_engine_does_not_ask_where_it_runs() -> None:
    forbidden_names = {"back_end", "RealWorld", "SimulatedWorld", "asyncio", "simpy", "socket", "time", "random"}
    forbidden_names |= {"threading"}
    for path, tree in trees(ROOT / "testbed" / "engine"):
        if path.parent.name == "script" and path.name in ("thread.py", "watch.py"):
            continue  # they keep users' scripts apart, and watch their threads; they draw nothing, and time nothing
        for node in ast.walk(tree):
            used = None
            if isinstance(node, ast.Attribute):
                used = node.attr if node.attr in {"back_end"} else None
            elif isinstance(node, ast.Name | ast.alias):
                name = node.id if isinstance(node, ast.Name) else node.name.split(".")[0]
                used = name if name in forbidden_names else None
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
                used = "isinstance of a world" if "world" in ast.unparse(node.args[0]).lower() else None
            assert used is None, f"{path}:{getattr(node, 'lineno', 0)}: the engine uses {used}"


def test_both_worlds_are_given_the_same_factory() -> None:
    """No back end makes a role in another way than ``make_role``."""
    for package in WORLDS:
        for path, tree in trees(Path(str(package.__file__)).parent):
            for node in ast.walk(tree):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("testbed.engine"):
                    raise AssertionError(f"{path}:{node.lineno}: a world imports {node.module}")
