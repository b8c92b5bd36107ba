"""Placement of nodes on machines."""

from __future__ import annotations

import pytest

from testbed.cluster.connection import ClusterMachine
from testbed.cluster.machines import cluster_of, place
from testbed.errors import CapabilityError
from tests.faults import runs as fault_runs


def test_a_data_centre_without_enough_machines_is_refused_with_their_number() -> None:
    plan = fault_runs.plan_of(on="cluster")
    names = list(cluster_of(plan).data_centers)
    found = {name: [ClusterMachine(name, "127.0.0.1")] for name in names[:-1]} | {names[-1]: []}
    with pytest.raises(
        CapabilityError, match=rf"{names[-1]}: needs 1 machine with the label .*, but the cluster has 0;"
    ):
        place(plan, found)
