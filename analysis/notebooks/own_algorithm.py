"""Your own algorithm in fifty lines."""

# %% [markdown]
# # Your own algorithm in fifty lines
# A synchronisation algorithm is a pure decision: pushes in, effects out. It knows nothing of sockets, processes or
# clocks, so one class runs in every world. Ours, *one by one*, waits for every data centre like FSA, but instead of one
# step along the sum it makes one step along each one's gradient, in rank order: more steps for the same traffic.
#
# It is one new file. Here it is:

# %%
from pathlib import Path

from analysis.notebooks import one_by_one
from analysis.notebooks.one_by_one import OneByOne

FILE = Path(str(one_by_one.__file__))
print(FILE.read_text())

# %% [markdown]
# ## Try it on a list of pushes
# No network is needed to test a decision.

# %%
from testbed.policy.events import Aggregate, Push
from testbed.policy.sync.base import Tier

policy = OneByOne(Tier.of("a", "b"), OneByOne.Options())
assert policy.on_push(Push("a", key=0, round=1)) == []
assert policy.waiting_for(0, 1) == ("b",)
effects = policy.on_push(Push("b", key=0, round=1))
assert effects[:2] == [Aggregate(0, 1, ("a",)), Aggregate(0, 1, ("b",))]

# %% [markdown]
# ## Put it into the project
# The file goes to `testbed/policy/sync/`, and one line into that folder's table `SYNC`. This notebook does so in a copy
# of the project, so as to leave yours as it is.

# %%
import shutil
import tempfile

from analysis.notebooks.runs import ROOT

folder = tempfile.TemporaryDirectory()
project = Path(folder.name) / "project"
for package in ("testbed", "emulation", "topologies", "analysis", "scenarios"):
    shutil.copytree(ROOT / package, project / package, ignore=shutil.ignore_patterns("__pycache__"))
sync = project / "testbed" / "policy" / "sync"
shutil.copy(FILE, sync)
table = (sync / "__init__.py").read_text()
line = '    "one_by_one": OneByOne,\n}'
changed = table.replace("\n}", f"\n{line}").replace(
    "\nfrom testbed.policy.sync.ssp",
    "\nfrom testbed.policy.sync.one_by_one import OneByOne\nfrom testbed.policy.sync.ssp",
)
assert changed.count("OneByOne") == 2
(sync / "__init__.py").write_text(changed)

# %% [markdown]
# ## Run it in every world
# Simulated in virtual time, as real processes on loopback, and emulated in Mininet where this machine can do that.

# %%
import json
import subprocess
import sys

from analysis.notebooks.runs import SMALL


def ends_with(kind: str, on: str) -> str | None:
    """SHA-256 of the parameters at the end; ``None`` where this machine cannot do it (exit code 3)."""
    sets = [part for setting in (*SMALL, f"sync={kind}") for part in ("--set", setting)]
    out = Path(folder.name) / f"{kind}-{on}"
    command = [sys.executable, "-m", "testbed.cli.main", "run", "scenarios/quickstart.yaml", "--on", on,
               "--out", str(out), "--quiet", *sets]  # fmt: skip
    done = subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, timeout=280, check=False
    )
    if done.returncode == 3 and on == "emulate":
        print(f"{kind:12} {on:9} not on this machine: {done.stderr.strip().splitlines()[0]}")
        return None
    assert done.returncode == 0, done.stderr
    result = json.loads((out / "result.json").read_text())
    print(f"{kind:12} {on:9} accuracy {result['accuracy']:.3f} after {result['rounds']} rounds")
    return str(result["parameters_sha256"])


# %%
import os

environment = {**os.environ, "PYTHONPATH": str(project)}
worlds = ["simulate", "local", *(["emulate"] if shutil.which("mn") else [])]
ends = {world: ends_with("one_by_one", world) for world in worlds}
assert len({end for end in ends.values() if end}) == 1  # the same bits in all worlds
assert ends_with("fsa", "simulate") not in ends.values()
folder.cleanup()
