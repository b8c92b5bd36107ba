"""A scenario that trains in a tenth of a second, and how it is read."""

from __future__ import annotations

from collections.abc import Sequence

from testbed.scenario import Scenario, loads

TEXT = """
version: 1
name: small
seed: 1
run: {on: simulate}
topology:
  data_centers:
    - {name: a, central: true, workers: 1}
    - {name: b, workers: 1}
  links:
    - {between: [a, b], rate: 10 Mbit/s, delay: 5 ms}
training:
  {model: {kind: mlp, hidden: 16}, data: digits, batch: 32, rounds: 24, target_accuracy: 70 %, evaluate_every: 4}
device: {step_time: 20 ms}
optimizer: {kind: adam, learning_rate: 0.02}
"""


def reader(*changes: str):  # type: ignore[no-untyped-def]
    """Return what reads the small scenario with these changes, and further ones."""

    def read(settings: Sequence[str], on: str | None) -> Scenario:
        return loads(TEXT, "small.yaml", [*changes, *settings], on=on)

    return read
