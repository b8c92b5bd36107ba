"""Tells whether two Plans of one scenario have the same technique, even if they name it differently."""

from __future__ import annotations

from dataclasses import replace

from testbed.plan.model import Plan
from testbed.settings.job import Choice


def identity_of(plan: Plan) -> str:
    """Return a text that is equal for Plans of one scenario with one technique, pipeline and central data centre.

    With a single global server, the sharding makes no difference, as this server holds the whole model.
    """
    technique = plan.technique
    if len(plan.with_role("global_server")) == 1:
        technique = replace(technique, shard=Choice(kind="hashed"))
    central = [site.name for site in plan.network.sites if site.central]
    return repr((technique, plan.pipeline, [node.stage for node in plan.nodes], central))
