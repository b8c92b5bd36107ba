"""A scenario of three workers in two data centres whose workload is a script beside it."""

from __future__ import annotations

from pathlib import Path

_SCENARIO = """
version: 1
name: mine
seed: 3
workload: {script: mine.py}
topology:
  data_centers:
    - {name: hub, central: true, workers: 1}
    - {name: east, workers: 2}
  links:
    - {between: [hub, east], rate: 20 Mbit/s, delay: 5 ms}
training: {rounds: ROUNDS, evaluate_every: EVERY}
device: {step_time: 20 ms}
"""


def scenario(folder: Path, script: str, *, rounds: int = 4, evaluate_every: int = 4) -> Path:
    """Write ``mine.py`` and ``mine.yaml`` into ``folder``, which is made, and return the latter."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mine.py").write_text(script)
    text = _SCENARIO.replace("ROUNDS", str(rounds)).replace("EVERY", str(evaluate_every))
    (folder / "mine.yaml").write_text(text)
    return folder / "mine.yaml"
