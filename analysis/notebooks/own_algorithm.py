"""Your own algorithm in fifty lines."""

# %% [markdown]
# # Your own algorithm in fifty lines
# A synchronisation algorithm is a pure decision: pushes in, effects out. It knows nothing of sockets, processes or
# clocks, so one class runs in every world. Ours, *one by one*, waits for every data centre like FSA, but instead of one
# step along the sum it makes one step along each one's gradient, in rank order: more steps for the same traffic.
#
# It is one new file, anywhere. Here it is:

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
# ## Run it in every world
# A scenario names it by its file, `sync: one_by_one.py:OneByOne`. Simulated in virtual time, as real processes on
# loopback, and emulated in Mininet where this machine can do that.

# %%
import shutil
import subprocess

from analysis.notebooks.runs import run


def ends_with(kind: str, on: str) -> str | None:
    """SHA-256 of the parameters at the end; ``None`` where this machine cannot emulate (exit code 3)."""
    try:
        result = run(f"{kind.rpartition(':')[2]}-{on}", f"sync={kind}", on=on).result
    except subprocess.CalledProcessError as error:
        if error.returncode != 3 or on != "emulate":
            raise
        print(f"{on:9} not on this machine: {error.stderr.strip().splitlines()[0]}")
        return None
    assert result is not None
    print(f"{on:9} accuracy {result['accuracy']:.3f} after {result['rounds']} rounds")
    return str(result["parameters_sha256"])


# %%
worlds = ["simulate", "local", *(["emulate"] if shutil.which("mn") else [])]
ends = {world: ends_with(f"{FILE}:OneByOne", world) for world in worlds}
assert len({end for end in ends.values() if end}) == 1  # the same bits in all worlds
assert ends_with("fsa", "simulate") not in ends.values()
