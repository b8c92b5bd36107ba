"""The shape of a key's tensor, and its role in the model, for codecs and optimizers that treat matrices specially.

Tensors travel flat. A codec or an optimizer that declares ``by_shape`` receives the shape of each key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

MATRIX = "matrix"
VECTOR = "vector"
TABLE = "table"
HEAD = "head"
_OF_TOKENS = 3  # dimensions


@dataclass(frozen=True, slots=True)
class KeyShape:
    """Dimensions of a key's tensor (stored row by row), and its role in the model.

    role  ``matrix``: weights of a layer, including kernels of convolutions; ``vector``: biases and scales, and any
          slice that begins or ends within a row; ``table``: an embedding, whose rows are looked up; ``head``: the last
          matrix of a model, which computes the scores
    """

    dimensions: tuple[int, ...]
    role: str = VECTOR

    @property
    def matrix(self) -> tuple[int, int]:
        """Rows and columns: the first dimension, and the product of all others; a vector is one row."""
        if self.role == VECTOR:
            return 1, prod(self.dimensions)
        return self.dimensions[0], prod(self.dimensions[1:])

    def part(self, start: int, stop: int) -> KeyShape:
        """Return the shape of the elements from ``start`` to ``stop``: fewer rows if they are whole, else a vector."""
        if stop - start == prod(self.dimensions):
            return self
        _, columns = self.matrix
        if self.role != VECTOR and start % columns == 0 and stop % columns == 0:
            return KeyShape(((stop - start) // columns, *self.dimensions[1:]), self.role)
        return KeyShape((stop - start,))


def activation_shape(dimensions: Sequence[int]) -> KeyShape:
    """Return activations as a matrix: a row for each token [samples, tokens, width], or else for each sample."""
    rows = dimensions[0] * dimensions[1] if len(dimensions) == _OF_TOKENS else dimensions[0]
    return KeyShape((rows, prod(dimensions) // rows), MATRIX)


def shapes_of(dimensions: Sequence[tuple[int, ...]], tables: frozenset[int] = frozenset()) -> tuple[KeyShape, ...]:
    """Return the shapes of a model's tensors, in the order of the model. ``tables``: keys whose rows are looked up."""
    matrices = [key for key, each in enumerate(dimensions) if len(each) > 1 and key not in tables]
    roles = dict.fromkeys(tables, TABLE) | dict.fromkeys(matrices, MATRIX) | dict.fromkeys(matrices[-1:], HEAD)
    return tuple(KeyShape(each, roles.get(key, VECTOR)) for key, each in enumerate(dimensions))
