"""The checks of each axis."""

from __future__ import annotations

from types import FunctionType, ModuleType

from testbed.testing import codec, data, declared, files, model, optimizer, overlay, slices, split, sync, training
from testbed.testing.verdict import Check


def checks_in(*modules: ModuleType) -> tuple[Check, ...]:
    """Return the checks of modules, in their order: the public functions that take a subject and return nothing."""
    return tuple(
        function
        for module in modules
        for name, function in vars(module).items()
        if isinstance(function, FunctionType)
        and function.__module__ == module.__name__
        and not name.startswith("_")
        and function.__annotations__["return"] == "None"
    )


CONTRACTS: dict[str, tuple[Check, ...]] = {
    "sync": checks_in(sync),
    "codec": checks_in(codec),
    "order": slices.ORDER,
    "overlay": checks_in(overlay),
    "shard": slices.SHARD,
    "model": checks_in(model),
    "data": checks_in(data),
    "split": checks_in(split),
    "optimizer": checks_in(optimizer),
    "topology": files.TOPOLOGY,
    "trace": files.TRACE,
}


def checks_of(axis: str, *, with_training: bool = True) -> tuple[Check, ...]:
    """Return what a technique of ``axis`` has to pass, the cheapest first."""
    if axis == "figure":
        from testbed.testing import figure  # which loads pandas and matplotlib

        return figure.CHECKS + (figure.RUNNING if with_training else ())
    if axis in ("topology", "trace"):  # whose options are the settings of a scenario
        return (declared.declarations_have_the_types_of_the_base_class, *CONTRACTS[axis])
    return checks_in(declared) + CONTRACTS[axis] + (checks_in(training) if with_training else ())
