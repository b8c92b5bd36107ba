"""Broken on purpose: there is nothing to draw."""

from analysis.studies.study import Study

WITHOUT_PANELS = Study(
    title="Bytes over the WAN",
    source="an example",
    scenario="quickstart.yaml",
    variants={"none": {}},
)
