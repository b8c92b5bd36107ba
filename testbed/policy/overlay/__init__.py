"""The overlay axis: along which nodes contributions and values travel."""

from __future__ import annotations

from testbed.axes import Axis
from testbed.policy.overlay.base import Overlay
from testbed.policy.overlay.netstorm import NetStorm
from testbed.policy.overlay.tree import Star, Tree
from testbed.policy.overlay.tsengine import TsEngine

OVERLAYS: Axis[Overlay] = Axis(
    "overlay", {"star": Star, "tree": Tree, "netstorm": NetStorm, "tsengine": TsEngine}, base=Overlay
)
