"""BERT (Devlin et al., 2019), XLM-R (Conneau et al., 2020) and GPT-2 (Radford et al., 2019), by depth and width.

Work of a sample of T tokens: 2·T per matrix element, and 4·T²·width per layer for the attention's two products.
"""

from __future__ import annotations

from testbed.training.declared.table import Layers

BERT_VOCABULARY, BERT_TOKENS = 30_522, 512
XLM_VOCABULARY, XLM_POSITIONS = 250_002, 514  # two positions are unused
GPT2_VOCABULARY, GPT2_TOKENS = 50_257, 1_024


def bert(depth: int, width: int, tokens: int) -> Layers:
    """The encoder with its pooler, without a head: 12 layers of 768 are BERT-base."""
    return _encoder([BERT_VOCABULARY * width, BERT_TOKENS * width, 2 * width], depth, width, tokens)


def xlm_roberta(depth: int, width: int, tokens: int) -> Layers:
    """BERT with a hundred languages' vocabulary: 24 layers of 1024 are XLM-R large."""
    return _encoder([XLM_VOCABULARY * width, XLM_POSITIONS * width, width], depth, width, tokens)


def _encoder(embeddings: list[int], depth: int, width: int, tokens: int) -> Layers:
    layers = Layers()
    layers.add("embeddings", embeddings)
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
    """The decoder; its output matrix is the token embedding again, so it adds work, but no key."""
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
