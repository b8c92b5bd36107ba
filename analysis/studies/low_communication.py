"""Loss over bytes, time and tokens for methods that train with little communication, on one network and one text.

All methods make the same number of steps with the same batches. The same learning rates of the inner optimizer are
tried for each. The second case counts the bytes of a push of GPT-2 small, which is only declared by its sizes.
"""

from __future__ import annotations

from typing import Any

from analysis.identity import Identity
from analysis.studies.study import Case, Expected, Panel, Study, StudyRun

CONTEXT = 64  # tokens of a sample, as in the scenario
STEPS = 600
H = 15
SPARSELOCO = "SparseLoCo"
DILOCO = "DiLoCo"


def _schedule(kind: str, **options: Any) -> str:
    chosen = {"kind": kind, "schedule": "cosine", "warmup": 30, "period": STEPS, "clip_norm": 1, **options}
    return "{" + ", ".join(f"{name}: {value}" for name, value in chosen.items()) + "}"


_LOCAL = {"training.rounds": f"{STEPS // H}", "training.evaluate_every": "4"}
_EVERY_STEP = {"training.rounds": f"{STEPS}", "training.evaluate_every": "60", "sync": "fsa", "paradigm": "allreduce"}
_OUTER = f"{{kind: diloco, h: {H}, outer_learning_rate: 0.7, outer_momentum: 0.6}}"
VARIANTS = {
    DILOCO: {**_LOCAL, "sync": _OUTER, "codec": "none", "optimizer": _schedule("adamw", learning_rate=0.004)},
    "AdamW": {**_EVERY_STEP, "codec": "none", "optimizer": _schedule("adamw", learning_rate=0.004)},
    "PowerSGD": {
        **_EVERY_STEP,
        "codec": "{kind: powersgd, rank: 4, start: 10}",
        "optimizer": _schedule("adamw", learning_rate=0.004),
    },
    "DeMo": {**_EVERY_STEP, "codec": "demo", "optimizer": _schedule("signsgd", learning_rate=0.004)},
    "MuLoCo": {
        **_LOCAL,
        "sync": _OUTER,
        "codec": "{tier1: none, tier2: {kind: sparseloco, k: 4096, decay: 1}}",
        "optimizer": _schedule("muon", learning_rate=0.016, adam_learning_rate=0.004),
    },
    SPARSELOCO: {**_LOCAL, "optimizer": _schedule("adamw", learning_rate=0.004)},
}
_SIZES = {
    "training.model": "{kind: declared, name: gpt2-small}",
    "training.data": "none",
    "training.compute": "modelled",
    "training.rounds": "1",
    "training.evaluate_every": "1",
    "device.step_time": "1 s",
    "optimizer": "adamw",
    "simulation.network": "flows",
}
_PUSHES = {DILOCO: {"sync": _OUTER, "codec": "none"}, SPARSELOCO: {}}


def final_loss(each: StudyRun) -> float:
    """Return the loss on the held-out text after the last round; NaN if the run learned nothing."""
    losses = each.run.tables["accuracy"].sort_values("snapshot_t_s")["loss"].dropna()
    return float(losses.iloc[-1]) if len(losses) else float("nan")


def pushed_bytes(each: StudyRun) -> float:
    """Return the payload bytes of all pushes over the WAN."""
    transfers = each.run.tables["transfers"]
    return float(transfers[(transfers["tier"] == "wan") & (transfers["message"] == "push")]["payload_bytes"].sum())


STUDY = Study(
    title="Training with little communication",
    source="Sarfi et al. 2025; Thérien et al. 2025; Peng et al. 2024; Vogels et al. 2019; Douillard et al. 2023",
    scenario="low-communication/sparseloco.yaml",
    variants=VARIANTS,
    cases={"text": Case(), "bytes of a push": Case(_SIZES, variants=_PUSHES, seeds=1)},
    expected=(
        Expected(
            "SparseLoCo's pushes of GPT-2 small are 146.3 times smaller than DiLoCo's, ± 1 %",
            "bytes of a push",
            "pushed_bytes",
            low=146.29 * 0.99,
            high=146.29 * 1.01,
            exact=True,
        ),
        Expected("SparseLoCo's loss is at most 1 % above DiLoCo's", "text", "loss", low=0.99),
        Expected("MuLoCo's loss is below DiLoCo's", "text", "loss", low=1.0, technique="MuLoCo"),
        Expected("DeMo's loss is at most 3 % above AdamW's", "text", "loss", low=0.97, twin="AdamW", technique="DeMo"),
        Expected(
            "PowerSGD's loss is at most 3 % above AdamW's", "text", "loss", low=0.97, twin="AdamW", technique="PowerSGD"
        ),
    ),
    rates=("0.001", "0.004", "0.016"),
    columns={"loss": final_loss, "pushed_bytes": pushed_bytes},
    panels=tuple(
        Panel(title, "at_loss", x, kind="curve", where={"sweep": "text"}, log=log, x_label=label, y_label="loss")
        for title, x, label, log in (
            ("Over bytes", "at_bytes / 1e6", "payload over the WAN (MB)", "x"),
            ("Over time", "at_s", "training time (s)", "x"),
            ("Over tokens", f"at_samples * {CONTEXT} / 1e6", "tokens (millions)", ""),
        )
    ),
    looks={
        DILOCO: Identity(DILOCO, "#0072B2", "o"),
        "AdamW": Identity("AdamW in every step", "#000000", "h"),
        "PowerSGD": Identity("PowerSGD", "#009E73", "^"),
        "DeMo": Identity("DeMo", "#CC79A7", "v"),
        "MuLoCo": Identity("MuLoCo", "#E69F00", "D"),
        SPARSELOCO: Identity(SPARSELOCO, "#D55E00", "s"),
    },
    size_in=(10.5, 3.8),
)
