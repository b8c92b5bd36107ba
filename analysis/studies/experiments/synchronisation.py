"""Every scenario of scenarios/sync: accuracy over time, time to the target, WAN bytes, share of waiting."""

from __future__ import annotations

from analysis.metrics import waiting
from analysis.studies.columns import accuracy
from analysis.studies.study import Panel, Study, StudySweep

STUDY = Study(
    title="Synchronisation algorithms on the same job", source="scenarios/sync", scenario="sync/*.yaml",
    sweeps=lambda quick: (StudySweep("sync", {"": {}}),), on=("emulate",), curves=accuracy,
    columns={"waiting_share": lambda each: waiting(each.run)},
    panels=(
        Panel("Accuracy", kind="curve"),
        Panel("Time to 90 %", "time_to_target_s", kind="bar", y_label="s"),
        Panel("WAN traffic", "wan_bytes / 1e6", kind="bar", y_label="MB"),
        Panel("Share of waiting", "100 * waiting_share", kind="bar", y_label="%"),
    ),
    rows=2, size_in=(9.4, 6.4),
)  # fmt: skip
