"""Large models as tables of layers, for predictions at a scale where real training does not fit.

Sizes follow the architectures' papers and are checked against published totals (tests/training/test_declared.py).
Work is that of convolutions and matrix products, 2 operations per multiply-add; backward is twice forward, except
for a first segment, whose input needs no gradient.
"""

from __future__ import annotations

from collections.abc import Callable

from testbed.training.declared.table import Layers, alexnet, bert, convnext, gpt2, resnet, vgg, xlm_roberta

IMAGE_MODELS: dict[str, Callable[[], Layers]] = {
    "alexnet": alexnet,
    "resnet18": lambda: resnet((2, 2, 2, 2), bottleneck=False),
    "resnet50": lambda: resnet((3, 4, 6, 3), bottleneck=True),
    "resnet101": lambda: resnet((3, 4, 23, 3), bottleneck=True),
    "resnet152": lambda: resnet((3, 8, 36, 3), bottleneck=True),
    "convnext-large": lambda: convnext((3, 3, 27, 3), 192),
    "vgg11": lambda: vgg((1, 1, 2, 2, 2)),
    "vgg16": lambda: vgg((2, 2, 3, 3, 3)),
    "vgg19": lambda: vgg((2, 2, 4, 4, 4)),
}

# The argument is the number of tokens of a sample.
LANGUAGE_MODELS: dict[str, Callable[[int], Layers]] = {
    "bert-base": lambda tokens: bert(12, 768, tokens),
    "bert-large": lambda tokens: bert(24, 1024, tokens),
    "xlm-roberta-large": lambda tokens: xlm_roberta(24, 1024, tokens),
    "gpt2-small": lambda tokens: gpt2(12, 768, tokens),
    "gpt2-medium": lambda tokens: gpt2(24, 1024, tokens),
    "gpt2-large": lambda tokens: gpt2(36, 1280, tokens),
    "gpt2-xl": lambda tokens: gpt2(48, 1600, tokens),
}

DECLARED: tuple[str, ...] = (*IMAGE_MODELS, *LANGUAGE_MODELS)
