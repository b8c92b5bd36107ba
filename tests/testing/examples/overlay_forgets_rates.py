"""Broken on purpose: measured rates, by which trees and transfers are chosen, are in no checkpoint."""

from collections.abc import Mapping
from typing import Any

from testbed.policy.overlay.netstorm import NetStorm
from testbed.policy.overlay.tsengine import TsEngine


class ForgetsItsTrees(NetStorm):
    """After a checkpoint, the planned rates count."""

    def state(self) -> dict[str, Any]:
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        pass


class ForgetsItsTransfers(TsEngine):
    """After a checkpoint, it explores again."""

    def state(self) -> dict[str, Any]:
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        pass
