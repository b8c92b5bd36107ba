"""A small decoder-only transformer over characters, in the form of GPT-2 (Radford et al., 2019): norms come first.

It has no dropout, so that a step depends on values and samples only, and its output matrix is not tied to the
embedding, so that no two segments share a key.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn import functional

from testbed.training.options.models import Transformer


class Embedding(nn.Module):
    """int64 [batch, tokens] to float32 [batch, tokens, width]: the character's embedding plus its position's."""

    def __init__(self, vocabulary: int, context: int, width: int) -> None:
        super().__init__()
        self.character = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(context, width)

    def forward(self, characters: Tensor) -> Tensor:
        positions = torch.arange(characters.shape[1], device=characters.device)
        embedded: Tensor = self.character(characters) + self.position(positions)
        return embedded


class TransformerBlock(nn.Module):
    """Self-attention and a feed-forward network, each added to its input [batch, tokens, width].

    ``causal``: no token attends to later ones.
    """

    def __init__(self, width: int, heads: int, causal: bool = True) -> None:
        super().__init__()
        self._heads = heads
        self._causal = causal
        self.norm1 = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 4 * width)
        self.contract = nn.Linear(4 * width, width)

    def forward(self, inputs: Tensor) -> Tensor:
        attended = inputs + self.projection(self._attention(self.norm1(inputs)))
        fed: Tensor = attended + self.contract(functional.gelu(self.expand(self.norm2(attended))))
        return fed

    def _attention(self, inputs: Tensor) -> Tensor:
        batch, tokens, width = inputs.shape
        split = self.query_key_value(inputs).view(batch, tokens, 3, self._heads, width // self._heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=self._causal)
        return attended.transpose(1, 2).reshape(batch, tokens, width)


def transformer(options: Transformer, input_shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """Logits [batch, tokens, classes] for the next character at each place. Segments: embedding, blocks, head."""
    width = options.heads * options.head_width
    blocks: OrderedDict[str, nn.Module] = OrderedDict(embedding=Embedding(classes, input_shape[0], width))
    for number in range(1, options.layers + 1):
        blocks[f"block{number}"] = TransformerBlock(width, options.heads)
    blocks["head"] = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, classes))
    return nn.Sequential(blocks)
