"""What a codec declares of itself; free of torch, so that a scenario is read without it."""

from __future__ import annotations

from typing import Any, ClassVar


class CodecDeclarations:
    """Properties of a codec, as class attributes.

    exact       what is decoded has the bits of what was encoded, up and down
    dense       the payload is the tensor, element by element: it can be cut at any element, and sums of payloads are
                payloads of the sum
    elementwise what is decoded of an element depends on that element (and its past) alone: of a tensor that is cut, the
                pieces give the same numbers. ``dense`` codecs are
    has_memory  what it sends depends on earlier tensors (residuals, momentum, mirrors of the other end)
    sparse      of most tensors some elements are sent, and the others later
    size_only   the payload's size follows from the tensor's size alone
    encode_s_per_element, decode_s_per_element
                seconds for one element of a large tensor on one core, in virtual time; for codecs that the table of
                measured costs does not have. The default is about a copy with some arithmetic
    geomx       what GeoMX's ``set_gradient_compression`` calls it, and the option that its ``threshold`` sets
    """

    exact: ClassVar[bool] = False
    dense: ClassVar[bool] = False
    elementwise: ClassVar[bool] = False
    has_memory: ClassVar[bool] = False
    sparse: ClassVar[bool] = False
    size_only: ClassVar[bool] = False
    encode_s_per_element: ClassVar[float] = 4e-9
    decode_s_per_element: ClassVar[float] = 4e-9
    geomx: ClassVar[tuple[str, str]] = ("", "")

    @classmethod
    def to_add_up(cls, options: Any) -> dict[str, Any]:
        """Return the options with which what it sends and what it keeps back add up to what it was given; those that
        differ. Momentum correction and clipping are to be left out where tensors are not gradients."""
        return {}

    @classmethod
    def pull_on(cls, options: Any, tier: int) -> str:
        """Return how values are sent back on ``tier``.

        ``dense``: everything; ``sparse-sum``: the non-zero elements, for sums of sparse gradients; ``difference``: the
        largest changes against what the child holds, for parameters.
        """
        return "dense"
