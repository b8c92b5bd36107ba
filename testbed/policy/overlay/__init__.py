"""The overlay axis: who sends what to whom. ``star``: every child to its server and back."""

from __future__ import annotations

from testbed.policy.overlay.star import Star

OVERLAYS = {"star": Star}
