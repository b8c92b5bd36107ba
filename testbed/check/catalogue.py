"""The checks of each axis."""

from __future__ import annotations

from testbed.check import (
    codec,
    codec_values,
    data,
    declared,
    files,
    model,
    optimizer,
    overlay,
    slices,
    split,
    sync,
    training,
)
from testbed.check.verdict import Check

CONTRACTS: dict[str, tuple[Check, ...]] = {
    "sync": sync.CHECKS,
    "codec": codec.CHECKS + codec_values.CHECKS,
    "order": slices.ORDER,
    "overlay": overlay.CHECKS,
    "shard": slices.SHARD,
    "model": model.CHECKS,
    "data": data.CHECKS,
    "split": split.CHECKS,
    "optimizer": optimizer.CHECKS,
    "topology": files.TOPOLOGY,
    "trace": files.TRACE,
}


def checks_of(axis: str, *, with_training: bool = True) -> tuple[Check, ...]:
    """Return what a technique of ``axis`` has to pass, the cheapest first."""
    if axis == "figure":
        from testbed.check import figure  # which loads pandas and matplotlib

        return figure.CHECKS + (figure.RUNNING if with_training else ())
    if axis in ("topology", "trace"):  # whose options are the settings of a scenario
        return (declared.declarations_have_the_types_of_the_base_class, *CONTRACTS[axis])
    return declared.CHECKS + CONTRACTS[axis] + (training.CHECKS if with_training else ())
