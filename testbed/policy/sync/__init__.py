"""The synchronisation axis: when is a round complete, who waits, what is applied. One file per algorithm."""

from __future__ import annotations

from testbed.policy.sync.fsa import Fsa

SYNC = {"fsa": Fsa}
