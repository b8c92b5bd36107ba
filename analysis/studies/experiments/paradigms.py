"""All paradigms on four continents: accuracy over time, time to the same accuracy, and what crossed the WAN.

The scenario ``scenarios/topologies/hmc4.yaml``, its model, data and clock; only the paradigm differs. Gloo has
sockets of its own, so it is not simulated.
"""

from __future__ import annotations

from analysis.identity import Identity, series
from analysis.metrics import wan_bytes
from analysis.studies.columns import accuracy
from analysis.studies.study import Panel, Study, StudyRun, StudySweep

COMMON = {"training.rounds": "80", "training.target_accuracy": "0.9", "training.evaluate_every": "5"}
AT_WORKERS = {"optimizer": "{kind: adam, learning_rate: 0.002, at: worker}"}
WITHOUT_MOMENTUM = {"optimizer": "{kind: adam, learning_rate: 0.002, beta1: 0, at: worker}"}  # it repeats sparse sums


def _peers(paradigm: str) -> dict[str, str]:
    return {**COMMON, **AT_WORKERS, "paradigm": paradigm}


def _allreduce(algorithm: str) -> dict[str, str]:
    return _peers(f"{{kind: allreduce, algorithm: {algorithm}}}")


def _gossip(algorithm: str) -> dict[str, str]:
    return _peers(f"{{kind: gossip, algorithm: {algorithm}}}")


PARADIGMS: dict[str, dict[str, str]] = {
    "PS, one tier": {**COMMON, "paradigm": "ps"},
    "HiPS": {**COMMON, "paradigm": "hips"},
    "HiPS, Bi-Sparse": {**COMMON, "paradigm": "hips", "codec": "bisparse"},
    "ring": _allreduce("ring"),
    "butterfly": _allreduce("butterfly"),
    "BlueConnect": _allreduce("blueconnect"),
    "HiTopKComm 5 %": {**_allreduce("hitopk, density: 5 %"), **WITHOUT_MOMENTUM},
    "flat top-k 5 %": {**_allreduce("flat_topk, density: 5 %"), **WITHOUT_MOMENTUM},
    "D-PSGD": _gossip("dpsgd, graph: exponential"),
    "SGP": _gossip("sgp, graph: exponential"),
    "AD-PSGD": _gossip("adpsgd, graph: ring"),
}
OTHERS = {"gloo": _peers("gloo")}


def sweeps(quick: bool) -> tuple[StudySweep, ...]:
    few = ("HiPS", "ring")
    shown = {name: each for name, each in PARADIGMS.items() if not quick or name in few}
    return (StudySweep("paradigms", shown), StudySweep("libraries", OTHERS, on=("emulate", "local")))


def wan_bytes_per_round(each: StudyRun) -> float:
    """Of a worker's mean number of rounds: some may be ahead of others."""
    rounds = each.run.tables["rounds"]
    return float(wan_bytes(each.run) * rounds["node"].nunique() / len(rounds))


def _look(number: int, name: str) -> Identity:
    look = series(number, name)
    return Identity(name, look.color, look.marker, "-" if number < 7 else "--")


STUDY = Study(
    title="Paradigms on four continents", source="scenarios/topologies/hmc4.yaml", scenario="topologies/hmc4.yaml",
    sweeps=sweeps, curves=accuracy, columns={"wan_bytes_per_round": wan_bytes_per_round},
    looks={name: _look(number, name) for number, name in enumerate((*PARADIGMS, *OTHERS))},
    panels=(
        Panel("Accuracy", kind="curve", log="x", width=1.4),
        Panel("Time to 90 %", "time_to_target_s", kind="bar", y_label="s"),
        Panel("WAN payload of a round", "wan_bytes_per_round / 1e6", kind="bar", y_label="MB"),
    ),
    size_in=(12.5, 4.2),
)  # fmt: skip
