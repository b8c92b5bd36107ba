"""Which way to train takes the least time per token: whole models, pipelines over the WAN, or pipelines inside sites.

Three models on four networks are simulated by sizes and amounts of work; nothing is learned. Each step has the same
batch, whether it is computed by eight machines with a whole model each, by one pipeline with eight stages, or by four
pipelines with two stages, one in each data centre.
"""

from __future__ import annotations

from dataclasses import dataclass

from analysis.identity import Identity, look_of
from analysis.studies.claims import Claims, exactly, unresolved
from analysis.studies.columns import round_s, samples
from analysis.studies.results import Results
from analysis.studies.study import Case, Panel, Settings, Study, StudyRun

FSA = "FSA"
DILOCO = "DiLoCo"
SPARSELOCO = "SparseLoCo"
PIPELINE = "greedy over the WAN"
OF_ITS_MEMORY = "greedy with 1F1B's memory"
ONE_F_ONE_B = "1F1B over the WAN"
BOTH = "1F1B inside and FSA"
BOTH_LOCAL = "1F1B inside and DiLoCo"
MACHINES = 8
STEPS = 30  # in a round of DiLoCo
NETWORKS = {
    "metro": ("100 Gbit/s", "1 ms"),
    "country": ("10 Gbit/s", "20 ms"),
    "continents": ("5 Gbit/s", "80 ms"),
    "internet": ("1 Gbit/s", "80 ms"),
}


@dataclass(frozen=True, slots=True)
class Model:
    """A declared model.

    tokens  length of a sequence
    batch   sequences of a machine in a step
    step_s  duration of this step
    fits    whether one machine can hold the model, its gradients, AdamW's state and the activations of a sequence
    """

    name: str
    tokens: int
    batch: int
    step_s: float
    fits: bool = True


MODELS = {
    "6.7 B": Model("llama2-7b", 4096, 32, 1.66),
    "13 B": Model("llama2-13b", 4096, 32, 3.2),
    "69 B": Model("llama2-70b", 4096, 32, 17.0, fits=False),
}
"""``step_s``: 6 operations for each parameter and token at 8 · 400 Tflop/s."""


_LARGE = {"order.slice": "1 GB"}  # fewer messages to simulate


def _whole(model: Model, technique: str, rounds: int, **more: str) -> Settings:
    return {
        "technique": technique,
        "training.batch": f"{model.batch}",
        "training.accumulate": f"{model.batch}",
        "training.rounds": f"{rounds}",
        "training.evaluate_every": f"{rounds}",
        "device.step_time": f"{model.step_s:g} s",
        **more,
    }


def _stages(model: Model, stages: int, paradigm: str, technique: str, rounds: int, **more: str) -> Settings:
    """Return the settings of pipelines. The batch of a replica is that of all its machines, one for each stage."""
    settings = _whole(model, technique, rounds, **more)
    cut = f"{{kind: pipeline, stages: {stages}, micro_batches: 32, recompute: true, {paradigm}}}"
    return {
        **settings,
        "paradigm": cut,
        "training.batch": f"{stages * model.batch}",
        "training.accumulate": "1",
        "device.step_time": f"{stages * model.step_s:g} s",
    }


def _variants(model: Model) -> dict[str, Settings]:
    local = {"sync.h": f"{STEPS}"}
    inside = "placement: whole_replicas, replicas: hips, schedule: 1f1b"
    whole = {
        FSA: _whole(model, "fsa", 3, **_LARGE),
        DILOCO: _whole(model, "diloco", 2, **local, **_LARGE),
        SPARSELOCO: _whole(model, "sparseloco", 2, **local, **_LARGE),
    }
    return {
        **(whole if model.fits else {}),
        PIPELINE: _stages(model, MACHINES, "placement: search, schedule: greedy", "fsa", 3),
        OF_ITS_MEMORY: _stages(
            model, MACHINES, f"placement: search, schedule: {{kind: greedy, held: {MACHINES}}}", "fsa", 3
        ),
        ONE_F_ONE_B: _stages(model, MACHINES, "placement: search, schedule: 1f1b", "fsa", 3),
        BOTH: _stages(model, 2, inside, "fsa", 3, **_LARGE),
        BOTH_LOCAL: _stages(model, 2, inside, "diloco", 2, **local, **_LARGE),
    }


def _cases() -> dict[str, Case]:
    cases = {}
    for size, model in MODELS.items():
        for network, (rate, delay) in NETWORKS.items():
            settings = {
                "training.model": f"{{kind: declared, name: {model.name}}}",
                "topology.links[*].rate": rate,
                "topology.links[*].delay": delay,
            }
            cases[f"{size}, {network}"] = Case(settings, variants=_variants(model), seeds=1)
    return cases


def _size(each: StudyRun) -> str:
    return each.sweep.partition(", ")[0]


def _network(each: StudyRun) -> str:
    return each.sweep.partition(", ")[2]


def token_us(each: StudyRun) -> float:
    """Return the time per token of all machines (µs), from the second round on."""
    rounds = each.run.tables["rounds"]["round"].nunique()
    tokens = samples(each) / rounds * MODELS[_size(each)].tokens
    return 1e6 * round_s(each) / float(tokens)


def claims(found: Results) -> Claims:
    table = found.runs.pivot_table(index=["size", "network"], columns="variant", values="token_us")
    if set(table) != {FSA, DILOCO, SPARSELOCO, PIPELINE, OF_ITS_MEMORY, ONE_F_ONE_B, BOTH, BOTH_LOCAL}:
        yield unresolved("which way is soonest per token", "not all variants were run")
        return
    fits = table.loc[[size for size, model in MODELS.items() if model.fits]]
    others = table.drop(columns=[DILOCO, SPARSELOCO]).min(axis=1)
    yield exactly(
        "where a machine holds the whole model, local steps of whole models are soonest on every network",
        float((others[fits.index] / fits[[DILOCO, SPARSELOCO]].min(axis=1)).min()),
        1.0,
        unit=" times at least",
    )
    cut = table.drop(fits.index)
    yield exactly(
        "where none does, pipelines inside with DiLoCo across are soonest on every network",
        float((cut[[PIPELINE, OF_ITS_MEMORY, ONE_F_ONE_B, BOTH]].min(axis=1) / cut[BOTH_LOCAL]).min()),
        1.0,
        unit=" times at least",
    )
    yield exactly(
        "a pipeline over the WAN is sooner than pipelines inside with FSA across, on every network",
        float((table[BOTH] / table[PIPELINE]).min()),
        1.0,
        unit=" times at least",
    )
    saved = 1 - table[OF_ITS_MEMORY] / table[ONE_F_ONE_B]
    yield unresolved(
        "CrossPipe: a schedule that knows delays takes up to 33.6 % less time than others with equal memory",
        "its models, rates and schedules are not stated in what could be read",
        f"here, greedy with the memory of 1F1B: {saved.min():.1%} to {saved.max():.1%} less",
    )
    yield unresolved(
        "Atlas: which arrangement of data centres is soonest, and up to 17 times",
        "its set-up is not stated in what could be read",
    )


STUDY = Study(
    title="Whole models, pipelines, and both",
    source="CrossPipe (USENIX ATC 2025); Atlas (2024); DiLoCo (2023); SparseLoCo (2025)",
    scenario="large/pipelines.yaml",
    cases=_cases(),
    claims=claims,
    columns={"size": _size, "network": _network, "token_us": token_us},
    panels=tuple(
        Panel(
            f"{size} parameters",
            "token_us",
            "network",
            kind="bar",
            where={"size": size},
            log="y",
            y_label="µs a token, all machines" if size == "6.7 B" else "",
        )
        for size in MODELS
    ),
    looks={
        FSA: look_of("fsa", FSA),
        DILOCO: look_of("diloco", DILOCO),
        SPARSELOCO: Identity(SPARSELOCO, "#D55E00", "s"),
        PIPELINE: Identity(PIPELINE, "#E69F00", "D"),
        OF_ITS_MEMORY: Identity(OF_ITS_MEMORY, "#56B4E9", "d"),
        ONE_F_ONE_B: Identity(ONE_F_ONE_B, "#999999", "v"),
        BOTH: Identity(BOTH, "#009E73", "^"),
        BOTH_LOCAL: Identity(BOTH_LOCAL, "#CC79A7", "P"),
    },
    size_in=(12.5, 4.2),
)
