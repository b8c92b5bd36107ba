"""Broken on purpose: a variant names a codec that does not exist."""

from analysis.studies.study import Panel, Study

UNKNOWN_CODEC = Study(
    title="Bytes over the WAN",
    source="an example",
    scenario="quickstart.yaml",
    variants={"none": {}, "fp15": {"codec": "fp15"}},
    panels=(Panel("Bytes", "wan_bytes", kind="bar"),),
)
