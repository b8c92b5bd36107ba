"""Which k elements of a tensor to send: exact selectors, the published approximations, random choice."""
