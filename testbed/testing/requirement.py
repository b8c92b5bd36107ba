"""The requirements of contracts, and the results of testing a technique against them.

A requirement is a function that takes a ``Subject`` and raises ``Broken``. Its docstring says what is expected of the
technique, and the argument of its decorator how to cure a technique that does not do so::

    @requirement("declare exact = False")
    def exact_is_declared_as_it_behaves(subject: Subject) -> None:
        \"\"\"With exact = True, what is decoded has the bits of what was encoded.\"\"\"
        require(torch.equal(sent, arrived), f"other numbers for {size} elements")
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from testbed.axes import place_in_code
from testbed.state import State, Stateful

_OTHER_ARGUMENTS = re.compile(r"\(\) (takes|missing|got) ")  # error of a function that takes other arguments


class Broken(AssertionError):
    """A technique breaks a requirement. ``cure`` is only needed if it differs from the requirement's own."""

    def __init__(self, happened: str, cure: str = "") -> None:
        self.happened = happened
        self.cure = cure
        super().__init__(f"{happened} ({cure})" if cure else happened)


def require(condition: object, happened: str, cure: str = "") -> None:
    """Raise ``Broken`` unless ``condition`` holds. ``cure`` replaces the requirement's own cure."""
    if not condition:
        raise Broken(happened, cure)


@dataclass(frozen=True, slots=True)
class Requirement:
    """A requirement for all techniques of an axis; call it with one. ``cure`` says what to change if it is broken."""

    test: Callable[[Any], None]
    cure: str

    def __call__(self, subject: Any) -> None:
        """Raise ``Broken`` if the technique breaks the requirement; exceptions of the technique are passed on."""
        self.test(subject)

    @property
    def name(self) -> str:
        """The function's name as words."""
        return self.test.__name__.replace("_", " ")

    @property
    def expected(self) -> str:
        """The function's docstring in one line."""
        return " ".join(str(self.test.__doc__).replace("``", "").split()).removesuffix(".")


def requirement(cure: str) -> Callable[[Callable[[Any], None]], Requirement]:
    """Make a requirement of a function."""
    return lambda test: Requirement(test, cure)


def requirements_of(*modules: ModuleType) -> tuple[Requirement, ...]:
    """Return the requirements that the modules define, in their order."""
    return tuple(each for module in modules for each in vars(module).values() if isinstance(each, Requirement))


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one requirement. ``expected``, ``happened`` and ``cure`` are empty if the technique passed."""

    check: str
    passed: bool
    expected: str = ""
    happened: str = ""
    cure: str = ""


def results(subject: Any, requirements: Iterable[Requirement]) -> Iterator[Result]:
    """Yield a result per requirement, in order. A requirement fails if the technique raises any exception in it."""
    for each in requirements:
        try:
            each(subject)
        except Broken as broken:
            yield Result(each.name, False, each.expected, broken.happened, broken.cure or each.cure)
        except Exception as error:
            place = place_in_code(error)
            happened = f"{place}{': ' if place else ''}{type(error).__name__}: {error}"
            other_arguments = not place and isinstance(error, TypeError) and _OTHER_ARGUMENTS.search(str(error))
            cure = "take the arguments that docs/axes names" if other_arguments else "handle this case, or declare it"
            yield Result(each.name, False, each.expected, happened, cure)
        else:
            yield Result(each.name, True)


def plain_state(part: Stateful) -> State:
    """Return the state of a part as a checkpoint returns it. Require that it holds only numbers and texts, by name."""
    state = part.state()
    for name, content in state.items():
        plain = isinstance(name, str) and isinstance(content, int | float | str)
        require(plain, f"{name!r} in the state is a {type(content).__name__}", "write lists with json.dumps")
    return dict(state)
