"""What is shipped: built-in topologies and traces, as files of ``data/`` that carry their source and licence."""

from __future__ import annotations

from pathlib import Path

DATA = Path(__file__).parent / "data"
BUILT_IN = tuple(sorted(path.stem for path in DATA.glob("*.yaml")))
LIBRARY = tuple(sorted(path.stem for path in (DATA / "traces").glob("*.csv")))


def topology_path(name: str) -> Path:
    """The file of a built-in topology."""
    return DATA / f"{name}.yaml"


def library_path(name: str) -> Path:
    """The file of a shipped trace."""
    return DATA / "traces" / f"{name}.csv"
