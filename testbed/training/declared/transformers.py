"""BERT (Devlin et al., 2019) and GPT-2 (Radford et al., 2019), by depth and width.

Work of a sample of T tokens: 2·T per matrix element, and 4·T²·width per layer for the attention's two products.
"""

from __future__ import annotations

from testbed.training.declared.table import Layers

BERT_VOCABULARY, BERT_TOKENS = 30_522, 512
GPT2_VOCABULARY, GPT2_TOKENS = 50_257, 1_024


def bert(depth: int, width: int, tokens: int) -> Layers:
    """The encoder with its pooler, without a head: 12 layers of 768 are BERT-base."""
    layers = Layers()
    layers.add("embeddings", [BERT_VOCABULARY * width, BERT_TOKENS * width, 2 * width])
    layers.norm("embeddings", width)
    for number in range(depth):
        name = f"layer{number}"
        for _ in ("query", "key", "value"):
            layers.linear(name, width, width, tokens)
        layers.add(name, [], 2 * tokens * tokens * width)
        layers.linear(name, width, width, tokens)
        layers.norm(name, width)
        layers.linear(name, width, 4 * width, tokens)
        layers.linear(name, 4 * width, width, tokens)
        layers.norm(name, width)
    layers.linear("pooler", width, width)
    return layers


def gpt2(depth: int, width: int, tokens: int) -> Layers:
    """The decoder; its output matrix is the token embedding again, so it is work but no key of its own."""
    layers = Layers()
    layers.add("embeddings", [GPT2_VOCABULARY * width, GPT2_TOKENS * width])
    for number in range(depth):
        name = f"h{number}"
        layers.norm(name, width)
        layers.linear(name, width, 3 * width, tokens)
        layers.add(name, [], 2 * tokens * tokens * width)
        layers.linear(name, width, width, tokens)
        layers.norm(name, width)
        layers.linear(name, width, 4 * width, tokens)
        layers.linear(name, 4 * width, width, tokens)
    layers.norm("head", width)
    layers.add("head", [], GPT2_VOCABULARY * width * tokens)
    return layers
