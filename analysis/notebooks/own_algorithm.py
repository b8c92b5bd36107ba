"""Your own algorithm in fifty lines."""

# %% [markdown]
# # Your own algorithm in fifty lines
# A synchronisation algorithm is a pure decision: pushes in, effects out. It knows nothing of sockets, processes or
# clocks, so one class runs in every world. Ours, *one by one*, waits for every data centre like FSA, but instead of one
# step along the sum it makes one step along each one's gradient, in rank order: more steps for the same traffic.
#
# In the project this class is a file, `testbed/policy/sync/one_by_one.py`, and one line in the table `SYNC`. Here the
# line is the assignment below, which lasts as long as this process.

# %%
from dataclasses import dataclass
from typing import ClassVar

from testbed.policy.events import Answer, Combine, Contribution, Effect, Push
from testbed.policy.sync import SYNC
from testbed.policy.sync.rounds import Rounds


class OneByOne:
    """Wait for all, make a step for each."""

    contribution: ClassVar = Contribution.GRADIENT
    tiers: ClassVar = (2,)
    partner: ClassVar = "fsa"  # on tier 1, where the scenario names only this

    @dataclass(frozen=True, slots=True)
    class Options:
        """No options."""

    def __init__(self, members: tuple[str, ...], options: Options) -> None:
        self._members = members
        self._rounds = Rounds(members)
        self.waiting_for = self._rounds.missing

    def on_push(self, push: Push) -> list[Effect]:
        if not self._rounds.complete(push):
            return []
        steps: list[Effect] = [Combine(push.key, push.round, (member,)) for member in self._members]
        everyone = (push.round,) * len(self._members)
        return [*steps, Answer(push.key, everyone, self._members, by=push.member)]


SYNC["one_by_one"] = OneByOne

# %% [markdown]
# ## Try it on a list of pushes
# No network is needed to test a decision.

# %%
policy = OneByOne(("a", "b"), OneByOne.Options())
assert policy.on_push(Push("a", key=0, round=1)) == []
assert policy.waiting_for(0, 1) == ("b",)
effects = policy.on_push(Push("b", key=0, round=1))
assert effects[:2] == [Combine(0, 1, ("a",)), Combine(0, 1, ("b",))]

# %% [markdown]
# ## Run it, simulated and as real processes
# The scenario names it like any other algorithm. What is imported after the line in `SYNC` knows it: hence the late
# imports. (Emulation starts a process of its own, which knows what stands in the project's table.)

# %%
import tempfile
from pathlib import Path

from analysis.notebooks.runs import ROOT, SMALL
from testbed.plan.build import build_plan
from testbed.run.host import attempt
from testbed.scenario.load import load


def digests(kind: str, on: str) -> set[str]:
    """SHA-256 of the final parameters at every holder."""
    import json

    plan = build_plan(load(ROOT / "scenarios/quickstart.yaml", [*SMALL, f"sync={kind}"]), on)
    with tempfile.TemporaryDirectory() as folder:
        outcome = attempt(plan, Path(folder), lambda event: None)
        assert outcome.status == "done", outcome.message
        lines = [
            json.loads(line) for log in Path(folder).glob("events/*.jsonl") for line in log.read_text().splitlines()
        ]
    accuracy = [line["accuracy"] for line in lines if line["kind"] == "evaluate"]
    print(f"{kind:12} {on:9} accuracy {accuracy[-1]:.3f} after {plan.training.iterations} rounds")
    return {line["parameters_sha256"] for line in lines if line.get("parameters_sha256")}


simulated, real = digests("one_by_one", "simulate"), digests("one_by_one", "local")
assert len(simulated) == 1 and simulated == real  # the same bits at every holder, in both worlds
assert digests("fsa", "simulate") != simulated
