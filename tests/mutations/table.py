"""All mutations by name, from one module per part of the product."""

from __future__ import annotations

from tests.mutations import (
    cluster,
    codec,
    devices,
    engine,
    exact,
    faults,
    files,
    policy,
    programs,
    scenario,
    simulation,
    training,
)
from tests.mutations.mutation import Mutation

TABLES = (policy, codec, training, scenario, engine, simulation, faults, files, programs, exact, cluster, devices)
MUTATIONS: dict[str, Mutation] = {name: mutation for table in TABLES for name, mutation in table.MUTATIONS.items()}
assert len(MUTATIONS) == sum(len(table.MUTATIONS) for table in TABLES), "two mutations of one name"
