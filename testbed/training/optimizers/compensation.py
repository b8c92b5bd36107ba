"""DC-ASGD: estimate a gradient at the current values from one that was computed at older values.

Zheng et al., Asynchronous Stochastic Gradient Descent with Delay Compensation, ICML 2017, equation 10: the gradient at
w is approximately g + λ·g⊙g⊙(w − w_backup), where w_backup are the values that the sender last pulled. The adaptive
variant divides λ by the root of the gradients' mean square.

GeoMX's DCASGD (``previous: any``) has one w_backup for all senders: the values before the latest update. So it
compensates for a single update, even if there were more since the sender pulled.
"""

from __future__ import annotations

import torch
from torch import Tensor

from testbed.state import Remembering
from testbed.training.options.optimizers import ANY, DcAsgd

EPSILON = 1e-7  # the paper's, under the root of the adaptive variant


class Compensation(Remembering):
    """Keeps one backup per member, and the mean square of gradients for the adaptive variant.

    A member is a party (data centre), or a single worker if the workers of its party do not wait for each other.
    """

    remembers = ("_first", "_backups", "_mean_square")

    def __init__(self, options: DcAsgd, value: Tensor) -> None:
        self._options = options
        # the backup of a member that has not pulled yet: the first value; with ``any``, the one before the last update
        self._first = value.clone()
        self._backups: dict[str, Tensor] = {}
        self._mean_square = torch.zeros_like(value) if options.adaptive else None

    def pulled(self, member: str, value: Tensor) -> None:
        """Record that ``member`` has pulled ``value``, which must not be changed afterwards."""
        if self._options.previous != ANY:
            self._backups[member] = value

    def forget(self, member: str) -> None:
        """Drop the backup of ``member``, which will compute no more gradients at it."""
        self._backups.pop(member, None)

    def __call__(self, gradient: Tensor, value: Tensor, member: str | None) -> Tensor:
        """Return the compensated gradient; without a member, or with λ = 0, the gradient itself, bit for bit.

        Called once an update, before it changes ``value``.
        """
        factor = self._factor(gradient)
        earlier = self._first if member is None else self._backups.get(member, self._first)
        if self._options.previous == ANY:
            self._first = value.clone()
        if member is None or self._options.compensation == 0:
            return gradient
        # backups restored from a checkpoint are in main memory
        return gradient + factor * gradient * gradient * (value - earlier.to(value.device))

    def _factor(self, gradient: Tensor) -> Tensor | float:
        if self._mean_square is None:
            return self._options.compensation
        memory = self._options.mean_square_decay
        self._mean_square.mul_(memory).addcmul_(gradient, gradient, value=1 - memory)
        return self._options.compensation * (self._mean_square + EPSILON).rsqrt()  # as in ``adam``
