"""What a seed makes: a technique, a policy, and some faults; all of it texts that a scenario would say.

Half of the techniques are of a covering array: every value of every axis beside every value of every other that it
goes with. The other half differ from the defaults on one axis only. Where there are two tiers, one schedule of five has
another algorithm of synchronisation on each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from random import Random

from testbed.codec.options import CODECS
from testbed.errors import ScenarioError
from testbed.plan.model import Plan
from testbed.policy.events import Contribution
from testbed.policy.order import ORDERS
from testbed.policy.sync import SYNC
from testbed.scenario.matrix import AXES, DEFAULTS, Combination, overrides, refusals
from tests.faults.plans import quick_plan, recovery_of
from tests.faults.runs import faults
from tests.scenario.covering import covering

ROUNDS = 8
SMALL = (f"training.rounds={ROUNDS}", "training.batch=8", "simulation.events=brief")
FEW_STEPS = {  # local steps meet nobody
    "hfa": ("sync.k1=2", "sync.k2=3"),
    "diloco": ("sync.h=2",),
    "quorum": ("sync.h=2",),
    "async_local_sgd": ("sync.h=2",),
    "halos": ("sync.h=2", "sync.updates=2"),
    "decoupled": ("sync.h=2", "sync.fragments=2"),
    "deco": ("sync.every=2",),
}
# in one of four runs that have global servers; to which a round's first pushes come one after the other
SEVERAL_SERVERS = ("data_centers[hub].global_servers=2", "data_centers[hub].lan={rate: 1 Mbit/s}")
LATE_BLOCKS = ("zero", "next-round", "retransmit")
TIERS = (  # other kinds on the two tiers, which go together
    ("fsa", "mixedsync"),
    ("fsa", "bsp"),
    ("fsa", "tap"),
    ("fsa", "ssp"),
    ("esync", "fsa"),
    ("diloco", "bsp"),
    ("bsp", "tap"),
    ("tap", "mixedsync"),
    ("ssp", "mixedsync"),
    ("ssp", "tap"),
)
TWO_KEYS = "training.model={kind: mlp, layers: 0}"  # enough for any order of two; half the messages of four
POLICIES = ("restart", "restart", "continue", "continue", "continue", "abort")
LAST_MS, LONGEST_MS = 1000, 800  # a calm run takes about 1.3 s of virtual time
EXPENDABLE = ("hub/worker0", "east/worker0", "east/worker1", "west/worker0", "east", "west")
ANYBODY = (*EXPENDABLE, "east/server0", "hub/global0", "hub/scheduler")
FOLLOWED = ("hub/global0", "hub/global0", "hub/replica0")  # who do not come back
LINKS = ("hub<>east", "hub>west", "west>hub")
OVERLAPS = 0.7  # share of schedules in which one fault is drawn such that it overlaps another one of its target
PLAIN = ("none", "fp16")  # codecs that keep nothing back
LATE = ("east/worker0", "east/worker1", "west/worker0")
VALUES = {"rate": ", rate: 200 kbit/s", "loss": ", loss: 5 %", "delay": ", delay: 200 ms", "corrupt": ", share: 5 %"}
LINK_KINDS = ("down", *VALUES)
KINDS = ("kill", "kill", "kill", "kill", "pause", "slow", "join", "leave", "leave", "nan", "disk_full", *LINK_KINDS)
NEEDS = {"join": "continue", "leave": "continue"}  # the policy that a kind needs
SERVERS = {"east/server0": ("hips",), "hub/global0": ("hips", "ps")}  # the paradigms that have them


@dataclass(frozen=True)
class Case:
    """One schedule. ``exact``: whether the values do not depend on when things happen."""

    technique: tuple[str, ...]
    policy: str
    every: int  # rounds between checkpoints; 0: none
    faults: tuple[str, ...]
    exact: bool
    seed: int = -1
    replicas: int = 0

    @property
    def calm(self) -> tuple[str, ...]:
        """The same job, to which nothing happens."""
        return (*SMALL, *self.technique)

    @property
    def overrides(self) -> tuple[str, ...]:
        restarts = ", delay: 100 ms, max_restarts: 9" if self.policy == "restart" else ""
        recovery = f"on_failure: {self.policy}{restarts}, on_nan: {self.on_nan}, replicas: {self.replicas}"
        return (*self.calm, f"checkpoint.every={self.every}", f"recovery={{{recovery}}}", faults(*self.faults))

    @property
    def plan(self) -> Plan:
        """That of ``overrides``. Raises ``ScenarioError``."""
        return quick_plan(self.calm, self.faults, recovery_of(self.policy, self.on_nan, self.replicas), self.every)

    @property
    def on_nan(self) -> str:
        return "skip" if any("kind: nan" in fault for fault in self.faults) else "abort"

    def but(self, *texts: str) -> Case:
        """With these faults instead."""
        return replace(self, faults=texts)


@cache
def techniques() -> tuple[tuple[Combination, ...], tuple[Combination, ...]]:
    """Rows in which any two axes meet in every way; and those that differ from the defaults on one axis only."""
    single = [{axis: kind} for axis, kinds in AXES.items() for kind in kinds]
    return covering(1), tuple({**DEFAULTS, **one} for one in single if not refusals(one))


def is_exact(row: Combination) -> bool:
    """Whether its values are the same whatever takes how long, so that a run with restarts ends with equal bits."""
    timed = any(not SYNC[kind].waits or SYNC[kind].needs_reports for kind in (row["sync"], row.get("above", "fsa")))
    timed = timed or row["order"] == "dgt" or row["paradigm"] == "gossip"
    return not timed and row["overlay"] == "star"


def case(seed: int) -> Case:
    """The schedule of that seed, one that the validator lets pass."""
    chance = Random(f"schedule/{seed}")
    while True:
        row = _with_tiers(chance.choice(chance.choice(techniques())), seed)
        drawn = _drawn(chance, row, seed)
        if drawn.faults and passes(drawn.technique, drawn.policy, drawn.every, drawn.on_nan, drawn.replicas):
            return drawn


def _drawn(chance: Random, row: Combination, seed: int) -> Case:
    policy, every = chance.choice(POLICIES), chance.choice((0, 0, 1, 3))
    replicas = int(policy == "continue" and chance.random() < 0.7)
    whom = [name for name in ANYBODY if name in EXPENDABLE or policy != "continue"]
    whom += FOLLOWED if replicas else []
    whom = [name for name in whom if row["paradigm"] in SERVERS.get(name, (row["paradigm"],))]
    kinds = [kind for kind in KINDS if NEEDS.get(kind, policy) == policy and (every or kind != "disk_full")]
    served = row["paradigm"] in SERVERS["hub/global0"]
    reliable = row["codec"] in PLAIN and not ORDERS[row["order"]].best_effort
    kinds = [kind for kind in kinds if kind != "leave" or (reliable and served)]
    texts = [_fault(chance, chance.choice(kinds), chance.choice(whom)) for _ in range(chance.randint(1, 4))]
    if chance.random() < OVERLAPS:
        texts += _overlapping(chance, kinds, whom)
    technique = _technique(row, seed)
    return Case(technique, policy, every, tuple(dict.fromkeys(texts)), is_exact(row), seed, replicas)


def _with_tiers(row: Combination, seed: int) -> Combination:
    """Some rows with another algorithm ``above``, on tier 2, than ``sync``, that on tier 1."""
    if seed % 5 != 3 or row["paradigm"] != "hips":
        return row
    below, above = TIERS[seed // 5 % len(TIERS)]
    return {**row, "sync": below, "above": above}


def _technique(row: Combination, seed: int) -> tuple[str, ...]:
    """As a scenario says it. Most runs have two keys; the others have four, and layers for what looks at layers."""
    above = row.get("above")
    row = {axis: kind for axis, kind in row.items() if axis != "above"}
    texts = overrides(row)
    if above is not None:
        few = "{kind: diloco, h: 2}" if row["sync"] == "diloco" else row["sync"]
        texts.append(f"sync={{tier1: {few}, tier2: {above}}}")
    said = {text.partition("=")[0] for text in texts}
    few_steps = FEW_STEPS.get(row["sync"], ()) if above is None else ()
    texts += [text for text in few_steps if text.partition("=")[0] not in said]
    if seed % 4 == 1 and row["paradigm"] in SERVERS["hub/global0"]:
        texts += SEVERAL_SERVERS
    sync = SYNC[row["sync"]]
    gradients = sync.waits and sync.contribution is Contribution.GRADIENT and row["order"] != "p3"
    if (
        seed % 5 == 2
        and gradients
        and row["paradigm"] in SERVERS["hub/global0"]
        and not CODECS[row["codec"]].has_memory
    ):
        texts.append("optimizer.at=worker")
    if row["order"] == "dgt" and "order.late" not in said:
        options = f"late: {LATE_BLOCKS[seed % len(LATE_BLOCKS)]}, block: 128 bytes, deadline: 5 ms"
        texts.append(f"order={{kind: dgt, k: 0.2, adaptive: false, {options}}}")
    small = seed % 3 and row["order"] != "p3"
    return (*texts, TWO_KEYS) if small else tuple(texts)


@cache
def passes(technique: tuple[str, ...], policy: str, every: int, on_nan: str, replicas: int) -> bool:
    """Whether a scenario may say so."""
    try:
        quick_plan((*SMALL, *technique), (), recovery_of(policy, on_nan, replicas), every)
    except ScenarioError:
        return False
    return True


def _overlapping(chance: Random, kinds: list[str], whom: list[str]) -> list[str]:
    """Two or three faults of one target, each of which begins while the first one is active."""
    begin_ms, length_ms = chance.randint(0, LAST_MS), chance.randint(50, LONGEST_MS)
    windows = [(begin_ms, length_ms)] + [
        (chance.randint(begin_ms, begin_ms + length_ms - 1), chance.randint(50, LONGEST_MS))
        for _ in range(chance.randint(1, 2))
    ]
    if chance.random() < 0.6:
        link = chance.choice(LINKS)
        return [_of_link(chance.choice(LINK_KINDS), link, *window) for window in windows]
    name = chance.choice([each for each in whom if each not in FOLLOWED] or whom)
    able = [kind for kind in ("kill", "pause") if kind in kinds and not (kind == "kill" and name in FOLLOWED)]
    return [f"kind: {chance.choice(able)}, {_node(name)}, {_lasting(*window)}" for window in windows]


def _node(whom: str) -> str:
    return f"node: {whom}" if "/" in whom else f"data_center: {whom}"


def _lasting(begin_ms: int, length_ms: int) -> str:
    return f"at: {begin_ms} ms, for: {length_ms} ms"


def _of_link(kind: str, link: str, begin_ms: int, length_ms: int) -> str:
    return f"kind: {kind}, link: {link}, {_lasting(begin_ms, length_ms)}{VALUES.get(kind, '')}"


def overlaps(plan: Plan) -> bool:
    """Whether two faults of one target are active at one time."""
    spans = [
        (name, fault.at_s, fault.at_s + fault.for_s)
        for fault in plan.faults
        if fault.at_s is not None
        for name in fault.targets
    ]
    return any(a[0] == b[0] and a[1] < b[2] and b[1] < a[2] for a, b in combinations(spans, 2))


def _fault(chance: Random, kind: str, whom: str) -> str:
    begin_ms, length_ms, node = chance.randint(0, LAST_MS), chance.randint(50, LONGEST_MS), _node(whom)
    begins, lasting = f"at: {begin_ms} ms", _lasting(begin_ms, length_ms)
    if kind in LINK_KINDS:
        return _of_link(kind, chance.choice(LINKS), begin_ms, length_ms)
    texts = {
        "kill": f"{node}, {lasting if chance.random() < 0.6 and whom not in FOLLOWED else begins}",
        "pause": f"{node}, {lasting}",
        "join": f"node: {chance.choice(LATE)}, {begins}",
        "leave": f"{node if node.startswith('data') else f'node: {chance.choice(LATE)}'}, {begins}",
        "slow": f"node: '*/worker*', pick: 2, {lasting}, factor: 5",
        "nan": f"node: '*/worker*', pick: 1, round: {chance.randint(0, ROUNDS - 1)}",
        "disk_full": f"node: '*', pick: 1, round: {chance.randint(0, ROUNDS - 1)}, rounds: 2",
    }
    return f"kind: {kind}, {texts[kind]}"
