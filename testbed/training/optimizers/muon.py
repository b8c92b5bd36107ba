"""Muon: orthogonalised momentum for the matrices of layers, and AdamW for all other tensors.

Jordan et al., Muon: An optimizer for hidden layers in neural networks, 2024; the inner optimizer of MuLoCo (Thérien et
al., 2025, arXiv 2505.23725). For a matrix of a layer, with its gradient G:

    M ← μ M + G
    U ← NewtonSchulz(G + μ M)        Nesterov's look-ahead, then five steps towards the nearest orthogonal matrix
    W ← (1 − lr · decay) W − lr √max(1, rows/columns) U

Kernels of convolutions are matrices with one row for each output. Embeddings, the head and vectors take the AdamW step
with ``adam_learning_rate``, which follows the same schedule.

Checked against the author's code (KellerJordan/Muon, muon.py at 857d1ad): coefficients, five steps, the scale, kernels
and the order of decay and step. The author's momentum is an average, (1 − μ) M, for which Newton-Schulz gives the same
matrix. The author's code computes in bfloat16, and its AdamW divides by √v + 1e-10, where PyTorch adds 1e-8.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from testbed.key_shape import MATRIX, KeyShape
from testbed.training.optimizers.adam import Adam
from testbed.training.options.optimizers import MuonOptions

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the fifth-degree polynomial, chosen for a steep rise near 0


def orthogonalised(matrix: Tensor, steps: int = 5) -> Tensor:
    """Return about U Vᵀ of ``matrix`` = U S Vᵀ, its singular values between about 0.7 and 1.2."""
    a, b, c = COEFFICIENTS
    tall = matrix.shape[0] > matrix.shape[1]
    found = matrix.T if tall else matrix
    found = found / (found.norm() + 1e-7)
    for _ in range(steps):
        gram = found @ found.T
        found = a * found + (b * gram + c * gram @ gram) @ found
    result: Tensor = found.T if tall else found
    return result


class Muon(torch.optim.Optimizer):
    """Muon for one matrix, which is given flat."""

    def __init__(self, options: MuonOptions, value: Tensor, shape: KeyShape) -> None:
        super().__init__([value], {"lr": options.learning_rate})
        self._options = options
        self._matrix = shape.matrix

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        group = self.param_groups[0]
        (value,) = group["params"]
        state = self.state[value]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(value)
        state["momentum"].mul_(self._options.momentum).add_(value.grad)
        direction = value.grad + self._options.momentum * state["momentum"]
        update = orthogonalised(direction.view(self._matrix)).flatten()
        rows, columns = self._matrix
        value.mul_(1 - group["lr"] * self._options.weight_decay)
        value.sub_(update, alpha=group["lr"] * max(1.0, rows / columns) ** 0.5)


class ScaledAdamW(Adam):
    """AdamW whose step size is the scheduled one times ``adam_learning_rate / learning_rate``."""

    def __init__(self, options: MuonOptions, value: Tensor) -> None:
        self._ratio = options.adam_learning_rate / options.learning_rate
        betas = (options.beta1, options.beta2)
        super().__init__([value], betas=betas, weight_decay=options.weight_decay, decoupled_weight_decay=True)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        self.param_groups[0]["lr"] *= self._ratio
        super().step()


def make_muon(options: MuonOptions, value: Tensor, shape: KeyShape) -> torch.optim.Optimizer:
    """Return Muon for the matrix of a layer, and AdamW for any other tensor."""
    return Muon(options, value, shape) if shape.role == MATRIX else ScaledAdamW(options, value)
