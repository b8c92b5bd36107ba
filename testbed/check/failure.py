"""What a check raises: what the contract demands, what the technique did instead, and what to change."""

from __future__ import annotations


class CheckFailed(AssertionError):
    """A technique breaks its contract."""

    def __init__(self, expected: str, happened: str, cure: str) -> None:
        self.expected, self.happened, self.cure = expected, happened, cure
        super().__init__(f"expected: {expected}; happened: {happened}; cure: {cure}")


def require(condition: object, expected: str, happened: str, cure: str) -> None:
    """Raise ``CheckFailed`` unless ``condition`` holds."""
    if not condition:
        raise CheckFailed(expected, happened, cure)
