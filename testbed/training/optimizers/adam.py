"""Adam (Kingma and Ba, 2015) and AdamW (Loshchilov and Hutter, 2019), with the same bits on every processor.

PyTorch's own step computes square roots with MKL. Two types of processors may round up to a fifth of these differently,
so workers on different machines that apply the same sums would get different parameters. PyTorch's fused kernel rounds
all square roots correctly, but computes the last elements of a tensor differently, so slices would not get the same
bits as the whole tensor.
"""

from __future__ import annotations

from collections.abc import Callable

import torch


class Adam(torch.optim.Adam):
    """Has the options and the state of PyTorch's Adam, without ``amsgrad``. ``decoupled_weight_decay``: AdamW."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        (group,) = self.param_groups
        (value,) = group["params"]
        gradient = value.grad
        state = self.state[value]
        if not state:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"] = torch.zeros_like(value)
            state["exp_avg_sq"] = torch.zeros_like(value)
        state["step"] += 1
        beta1, beta2 = group["betas"]
        bias_correction1 = 1 - beta1 ** state["step"].item()
        bias_correction2 = 1 - beta2 ** state["step"].item()
        if group["decoupled_weight_decay"]:
            value.mul_(1 - group["lr"] * group["weight_decay"])
        elif group["weight_decay"]:
            gradient = gradient.add(value, alpha=group["weight_decay"])
        state["exp_avg"].lerp_(gradient, 1 - beta1)
        state["exp_avg_sq"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        root = state["exp_avg_sq"].rsqrt().reciprocal_()  # PyTorch computes both without MKL
        denominator = root.div_(bias_correction2**0.5).add_(group["eps"])
        value.addcdiv_(state["exp_avg"], denominator, value=-group["lr"] / bias_correction1)
