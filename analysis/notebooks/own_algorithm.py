"""Your own algorithm in fifty lines."""

# %% [markdown]
# # Your own algorithm in fifty lines
# A synchronisation algorithm is a pure decision: pushes in, effects out. It knows no sockets, processes or clocks, so
# one class runs in every world. Ours, *one by one*, waits for all data centres like FSA, but instead of one step along
# the sum it makes one step along the gradient of each, in rank order: more steps for the same traffic.
#
# It is one file beside a scenario; nothing is installed, and no file of the project changes. Here it is:

# %%
import shutil
import tempfile
from pathlib import Path

from analysis.notebooks import one_by_one

folder = tempfile.TemporaryDirectory()
here = Path(folder.name)
file = Path(shutil.copy(str(one_by_one.__file__), here))
print(file.read_text())

# %% [markdown]
# ## Try it on a list of pushes
# No network is needed to test a decision.

# %%
from analysis.notebooks.one_by_one import OneByOne
from testbed.policy.events import Aggregate, Push
from testbed.policy.sync.base import Tier

policy = OneByOne(Tier.of("a", "b"), OneByOne.Options())
assert policy.on_push(Push("a", key=0, round=1)) == []
assert policy.waiting_for(0, 1) == ("b",)
effects = policy.on_push(Push("b", key=0, round=1))
assert effects[:2] == [Aggregate(0, 1, ("a",)), Aggregate(0, 1, ("b",))]

# %% [markdown]
# ## Check it
# `testbed check` holds it to the contract that the shipped algorithms keep: random orders of arrival, members that are
# lost and join again, and, without `--quick`, a training in virtual time and one in real processes.

# %%
import subprocess
import sys


def testbed(*words: str, fails: tuple[int, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run the command in the folder of the file."""
    command = [sys.executable, "-m", "testbed.cli.main", *words]
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode in (0, *fails), done.stdout + done.stderr
    return done


print(testbed("check", "./one_by_one.py:OneByOne", "--quick").stdout)

# %% [markdown]
# ## Run it in every world
# A scenario names the file, and the class in it. We take the quickstart, in small, with
# `sync: ./one_by_one.py:OneByOne`: simulated in virtual time, as real processes on loopback, and emulated in Mininet
# where this machine can do that.

# %%
import json

from analysis.notebooks.runs import ROOT, SMALL

shutil.copytree(ROOT / "scenarios" / "traces", here / "traces")
quickstart = (ROOT / "scenarios" / "quickstart.yaml").read_text()
assert "\nsync: fsa " in quickstart
(here / "mine.yaml").write_text(quickstart.replace("\nsync: fsa ", "\nsync: ./one_by_one.py:OneByOne "))
(here / "fsa.yaml").write_text(quickstart)


def ends_with(scenario: str, on: str) -> str | None:
    """SHA-256 of the parameters at the end; ``None`` where this machine cannot do it (exit code 3)."""
    sets = [part for setting in SMALL for part in ("--set", setting)]
    out = here / f"{scenario}-{on}"
    done = testbed("run", f"{scenario}.yaml", "--on", on, "--out", str(out), "--quiet", *sets, fails=(3,))
    if done.returncode:
        print(f"{scenario:5} {on:9} not on this machine: {done.stderr.strip().splitlines()[0]}")
        return None
    result = json.loads((out / "result.json").read_text())
    print(f"{scenario:5} {on:9} accuracy {result['accuracy']:.3f} after {result['rounds']} rounds")
    return str(result["parameters_sha256"])


# %%
worlds = ["simulate", "local", *(["emulate"] if shutil.which("mn") else [])]
ends = {world: ends_with("mine", world) for world in worlds}
assert len({end for end in ends.values() if end}) == 1  # the same bits in all worlds
assert ends_with("fsa", "simulate") not in ends.values()
folder.cleanup()
