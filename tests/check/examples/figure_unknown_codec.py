"""Broken on purpose: a variant names a codec that does not exist."""

from analysis.studies.study import Panel, Study, StudySweep

UNKNOWN_CODEC = Study(
    title="Bytes over the WAN",
    source="an example",
    scenario="quickstart.yaml",
    sweeps=lambda quick: (StudySweep("codecs", {"none": {}, "fp15": {"codec": "fp15"}}),),
    panels=(Panel("Bytes", "wan_bytes", kind="bar"),),
)
