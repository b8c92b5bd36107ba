"""The shipped topologies and traces: files in ``data/`` that state their source and licence."""

from __future__ import annotations

from pathlib import Path

DATA = Path(__file__).parent / "data"
BUILT_IN = tuple(sorted(path.stem for path in DATA.glob("*.yaml")))
LIBRARY = tuple(sorted(path.stem for path in (DATA / "traces").glob("*.csv")))


def topology_path(name: str) -> Path:
    return DATA / f"{name}.yaml"


def library_path(name: str) -> Path:
    return DATA / "traces" / f"{name}.csv"


def find_trace(name: str) -> tuple[Path, str]:
    """Return the file and quantity of a trace. ``name``: a shipped trace, or a file, which is read as rates."""
    if name in LIBRARY and not Path(name).exists():
        return library_path(name), trace_about(name)[0]
    return Path(name), "rate"


def trace_about(name: str) -> tuple[str, str]:
    """Return the quantity (``rate``, ``delay`` or ``loss``) and description that the file of a shipped trace states."""
    lines = library_path(name).read_text(encoding="utf-8").splitlines()
    header = next(line for line in lines if not line.startswith("#"))
    return header.partition(",")[2].partition("_")[0], lines[0].partition("SYNTHETIC: ")[2].rstrip(".")
