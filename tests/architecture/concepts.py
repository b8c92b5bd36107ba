"""Measure how many concepts the source has, beside those of November 2026 and the aims of its redesign.

``python -m tests.architecture.concepts [FOLDER]`` prints the table for this checkout, or for another one. All but the
lines are counted in syntax trees. The values of commit fc50b1b8 are those that this command found there.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.architecture.sources import PACKAGES, ROOT

SKIP = "# fmt: skip"


@dataclass(frozen=True)
class Module:
    """A file of Python, by its path from the root of its checkout."""

    path: str
    text: str

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(ast.parse(self.text)))

    @cached_property
    def identifiers(self) -> set[str]:
        return {name for node in self.nodes if (name := identifier(node))}


@dataclass(frozen=True)
class Checkout:
    """The modules of the product and of its tests."""

    product: Sequence[Module]
    tests: Sequence[Module]


def read(root: Path) -> Checkout:
    def modules(*packages: str) -> list[Module]:
        paths = [path for package in packages for path in sorted((root / package).rglob("*.py"))]
        return [Module(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")) for path in paths]

    return Checkout(modules(*PACKAGES), modules("tests"))


def identifier(node: ast.AST) -> str:
    """Return the name that a node defines or uses; empty if it has none."""
    for field in ("id", "attr", "arg", "name"):
        if isinstance(name := getattr(node, field, None), str):
            return name
    return ""


def classes(modules: Iterable[Module]) -> list[ast.ClassDef]:
    return [node for module in modules for node in module.nodes if isinstance(node, ast.ClassDef)]


def training_loops(checkout: Checkout) -> int:
    """Classes of the engine with a loop that awaits, which deal with four of: resuming, joining, evaluating,
    checkpoints, recording a round."""
    concerns = (
        {"resumed", "_resumed", "first_round"},
        {"joins", "joined_late", "leaves", "_departure"},
        {"evaluation", "_evaluation"},
        {"checkpointer", "_checkpointer", "keep", "_keep"},
        {"end_round", "_end_round", "record('round')"},
    )
    found = 0
    for each in classes(module for module in checkout.product if module.path.startswith("testbed/engine/")):
        inside = list(ast.walk(each))
        names = {identifier(node) for node in inside}
        for call in (node for node in inside if isinstance(node, ast.Call) and node.args):
            if isinstance(call.args[0], ast.Constant) and call.args[0].value == "round":
                names.add("record('round')")
        loops = (node for node in inside if isinstance(node, ast.For | ast.While))
        awaits = any(isinstance(node, ast.Await) for loop in loops for node in ast.walk(loop))
        found += awaits and sum(bool(names & concern) for concern in concerns) >= 4
    return found


def files_of_epochs(checkout: Checkout) -> int:
    """Files with an identifier that ends with the word epoch.

    Those of training are passes over the data, and those of simulated packets times in which CUBIC's window grows.
    """
    others = ("testbed/training/", "testbed/simulation/packets/")
    modules = (module for module in checkout.product if not module.path.startswith(others))
    return sum(any(re.search("(^|_)epoch$", name) for name in module.identifiers) for module in modules)


def definitions_of_load_state(checkout: Checkout) -> int:
    """Functions of this name."""
    nodes = (node for module in checkout.product for node in module.nodes)
    return sum(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == "load_state" for node in nodes)


def link_classes(checkout: Checkout) -> int:
    """Classes with values for a delay, and for two of rate, loss and queue. What has a kind as well is a fault."""
    found = 0
    for each in classes(module for module in checkout.product if not module.path.startswith("analysis/")):
        stored = [node for node in ast.walk(each) if isinstance(getattr(node, "ctx", None), ast.Store)]
        first_words = {identifier(node).lstrip("_").partition("_")[0] for node in stored}
        is_link = "delay" in first_words and len(first_words & {"rate", "loss", "queue"}) >= 2
        found += is_link and "kind" not in first_words
    return found


def lines_about_processes(checkout: Checkout) -> int:
    """Lines of files that start, watch or end processes themselves, by these functions."""
    functions = {
        "os.fork",
        "os.kill",
        "os.killpg",
        "os.waitid",
        "os.waitpid",
        "os.pidfd_open",
        "os.execve",
        "os.execvp",
        "os.posix_spawn",
        "signal.pidfd_send_signal",
        "subprocess.Popen",
        "asyncio.create_subprocess_exec",
        "multiprocessing.Process",
        "ray.remote",
        "die_with_parent",
    }
    lines = 0
    for module in checkout.product:
        named = (node for node in module.nodes if isinstance(node, ast.Name | ast.Attribute))
        if any(ast.unparse(node) in functions for node in named):
            lines += module.text.count("\n")
    return lines


def files_that_ask_back_end(checkout: Checkout) -> int:
    """Files with this identifier, or the text that is its name."""
    modules = checkout.product
    texts = {module.path for module in modules for node in module.nodes if getattr(node, "value", None) == "back_end"}
    return sum("back_end" in module.identifiers or module.path in texts for module in modules)


def private_attributes_in_tests(checkout: Checkout) -> int:
    """Accesses of tests to ``_names`` of others than ``self``, also by text, as ``monkeypatch.setattr`` does."""
    nodes = [node for module in checkout.tests for node in module.nodes]
    attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
    names = [node.attr for node in attributes if ast.unparse(node.value) not in ("self", "cls")]
    for call in (node for node in nodes if isinstance(node, ast.Call)):
        if identifier(call.func) in ("setattr", "delattr", "getattr"):
            texts = (argument.value for argument in call.args[:2] if isinstance(argument, ast.Constant))
            names += [str(text).rpartition(".")[2] for text in texts]
    return sum(name.startswith("_") and not name.startswith("__") for name in names)


def memos_on_the_plan(checkout: Checkout) -> int:
    """Files that write to a mapping which an attribute of a ``plan`` holds."""

    def is_of_plan(node: ast.AST) -> bool:
        return isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith("plan")

    def writes(node: ast.AST) -> bool:
        if isinstance(node, ast.Subscript):
            return isinstance(node.ctx, ast.Store) and is_of_plan(node.value)
        return isinstance(node, ast.Attribute) and node.attr in ("setdefault", "update") and is_of_plan(node.value)

    return sum(any(writes(node) for node in module.nodes) for module in checkout.product)


def patches_at_run_time(checkout: Checkout) -> int:
    """Assignments to attributes of an imported module, and those that are hidden from mypy: by ``cast(Any, …)`` or by
    ``ignore[method-assign]``. Those of ``sys``, and Python's hook for errors of threads, are made to be assigned."""
    found = 0
    for module in checkout.product:
        imports = [node for node in module.nodes if isinstance(node, ast.Import)]
        modules = {alias.asname or alias.name for node in imports for alias in node.names} - {"sys"}
        for node in (node for node in module.nodes if isinstance(node, ast.Assign)):
            stored = [each for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Attribute)]
            assigned = [each for each in stored if isinstance(each.ctx, ast.Store)]
            assigned = [each for each in assigned if ast.unparse(each) != "threading.excepthook"]
            of_module = any(ast.unparse(each.value) in modules for each in assigned)
            found += of_module or bool(stored and ast.unparse(node.value).startswith("cast(Any, "))
        found += module.text.count("ignore[method-assign]")
    return found


def calls_by_name(checkout: Checkout) -> int:
    """Calls of what ``getattr`` returns for a name that is computed."""
    nodes = (node for module in checkout.product for node in module.nodes)
    called = (node.func for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Call))
    return sum(identifier(call.func) == "getattr" and not isinstance(call.args[1], ast.Constant) for call in called)


def tuple_assignments(checkout: Checkout) -> int:
    """``a, b = x, y`` where no name on the left is used on the right, as it is in an exchange of values."""
    found = 0
    for node in (node for module in checkout.product for node in module.nodes if isinstance(node, ast.Assign)):
        target = node.targets[0]
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            used = {ast.unparse(each) for each in ast.walk(node.value) if isinstance(each, ast.expr)}
            found += not used & {ast.unparse(each) for each in target.elts}
    return found


def conditional_statements(checkout: Checkout) -> int:
    """Conditional expressions that are statements."""
    nodes = (node for module in checkout.product for node in module.nodes)
    return sum(isinstance(node, ast.Expr) and isinstance(node.value, ast.IfExp) for node in nodes)


def format_skips(checkout: Checkout) -> int:
    """Marks that keep the formatter away."""
    return sum(module.text.count(SKIP) for module in checkout.product)


def lines_of_product(checkout: Checkout) -> int:
    """Lines as the formatter leaves them; see ``_formatted_lines``."""
    return _formatted_lines(checkout.product)


def lines_of_tests(checkout: Checkout) -> int:
    """Likewise."""
    return _formatted_lines(checkout.tests)


def _formatted_lines(modules: Sequence[Module]) -> int:
    """Lines as ``ruff format`` leaves them without marks that keep it away."""
    with tempfile.TemporaryDirectory() as folder:
        for module in modules:
            path = Path(folder, module.path)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(module.text.replace(SKIP, ""), encoding="utf-8")
        ruff = [str(Path(sys.executable).with_name("ruff")), "format", "--quiet", "--no-cache"]
        subprocess.run([*ruff, "--config", str(ROOT / "pyproject.toml"), folder], check=True)
        return sum(Path(folder, module.path).read_text(encoding="utf-8").count("\n") for module in modules)


CONCEPTS: tuple[tuple[str, Callable[[Checkout], int], int, int | None], ...] = (
    # what, how it is counted, in commit fc50b1b8, aim at most
    ("training loops that resume, join, evaluate, save and record", training_loops, 6, 1),
    ("files that know membership epochs", files_of_epochs, 25, 8),
    ("definitions of load_state", definitions_of_load_state, 63, 25),
    ("classes that hold a link", link_classes, 7, 4),
    ("lines of files that start, watch or end processes", lines_about_processes, 5521, 4000),
    ("files that ask back_end", files_that_ask_back_end, 60, 15),
    ("accesses of tests to private attributes", private_attributes_in_tests, 442, 300),
    ("files that keep a memo on the Plan", memos_on_the_plan, 6, 0),
    ("methods and functions replaced at run time", patches_at_run_time, 7, 0),
    ("calls by a computed name", calls_by_name, 6, 0),
    ("# fmt: skip in the product", format_skips, 646, 0),
    ("tuple assignments of unrelated values", tuple_assignments, 1255, None),
    ("conditional expressions as statements", conditional_statements, 6, 0),
    ("lines of the product, formatted", lines_of_product, 84_952, 64_000),
    ("lines of the tests, formatted", lines_of_tests, 65_147, 44_000),
)


def main() -> None:
    checkout = read(Path(sys.argv[1]) if sys.argv[1:] else ROOT)
    sys.stdout.write(f"{'concept':<62}{'fc50b1b8':>10}{'now':>8}{'aim':>8}\n")
    for what, count, before, aim in CONCEPTS:
        sys.stdout.write(f"{what:<62}{before:>10}{count(checkout):>8}{'' if aim is None else aim:>8}\n")


if __name__ == "__main__":
    main()
