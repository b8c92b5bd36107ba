"""A figure: what two codecs send over the WAN in a round, with one claim."""

from analysis.studies.study import Expected, Panel, Study

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

BYTES_OF_CODECS = Study(
    title="Bytes over the WAN",
    source="an example",
    scenario=SCENARIO,
    variants={"none": {}, "fp16": {"codec": "fp16"}},
    expected=(Expected("FP16 halves the bytes", "runs", "wan_bytes", 2, 2),),
    panels=(Panel("Bytes", "wan_bytes / 1e6", kind="bar", y_label="MB"),),
)
