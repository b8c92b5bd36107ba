"""The version of the code that a run is executed by: a digest of sources and packages."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Sequence
from pathlib import Path

from testbed.results.manifest import version_of

_ROOT = Path(__file__).parents[2]
# Sources that affect the results of all runs, on every back end. Figures and commands are left out, as changes of them
# do not invalidate runs.
ALWAYS = (
    "testbed/axes.py",
    "testbed/best_effort.py",
    "testbed/buffers.py",
    "testbed/codec",
    "testbed/compute_model.py",
    "testbed/costs.py",
    "testbed/declaration.py",
    "testbed/devices",
    "testbed/engine",
    "testbed/environment.py",
    "testbed/execution",
    "testbed/facilities.py",
    "testbed/kvstore",
    "testbed/messages.py",
    "testbed/placeholders.py",
    "testbed/placing.py",
    "testbed/plan",
    "testbed/policy",
    "testbed/reference_costs.csv",
    "testbed/results",
    "testbed/settings",
    "testbed/state.py",
    "testbed/traffic.py",
    "testbed/training",
    "testbed/world.py",
)
_SOURCES = (".py", ".c", ".cpp")
PACKAGES = ("torch", "numpy", "simpy", "scikit-learn")


def packages() -> dict[str, str | None]:
    """Return the versions that must be the same on all machines of a run or sweep."""
    return {"Python": platform.python_version(), **{name: version_of(name) for name in PACKAGES}}


def code_version(own: Sequence[str], root: Path = _ROOT) -> str:
    """Return the digest of the sources and packages that determine the results of a run.

    own  the sources of its back end (``Facilities.sources``)
    """
    digest = hashlib.sha256()
    for place in (*ALWAYS, *own):
        path = root / place
        for source in [path] if path.suffix else sorted(p for p in path.rglob("*") if p.suffix in _SOURCES):
            digest.update(f"{source.relative_to(root)}\0".encode() + source.read_bytes() + b"\0")
    digest.update(" ".join(f"{name}={version_of(name)}" for name in PACKAGES).encode())
    return digest.hexdigest()
