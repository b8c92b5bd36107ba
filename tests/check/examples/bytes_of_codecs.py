"""A figure: what two codecs send over the WAN in a round, with one claim."""

from collections.abc import Iterable, Sequence

from analysis.studies.claims import Claim, exactly
from analysis.studies.study import Panel, Results, Study, StudySweep

SCENARIO = """
version: 1
name: bytes
seed: 1
run: {on: simulate}
topology:
  data_centers: [{name: a, central: true, workers: 1}, {name: b, workers: 1}]
  links: [{between: [a, b], rate: 10 Mbit/s, delay: 5 ms}]
training: {model: {kind: mlp, hidden: 8}, data: digits, batch: 8, rounds: 2, evaluate_every: 1}
device: {step_time: 10 ms}
"""


def sweeps(quick: bool) -> Sequence[StudySweep]:
    return (StudySweep("codecs", {"none": {}, "fp16": {"codec": "fp16"}}, seeds=1 if quick else 3),)


def claims(found: Results) -> Iterable[Claim]:
    yield exactly("FP16 halves the bytes", found.ratios("wan_bytes", "none", "fp16")[0], 2, 2, " times")


BYTES_OF_CODECS = Study(
    title="Bytes over the WAN",
    source="an example",
    scenario=SCENARIO,
    sweeps=sweeps,
    claims=claims,
    panels=(Panel("Bytes", "wan_bytes / 1e6", kind="bar", y_label="MB"),),
)
