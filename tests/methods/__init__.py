"""Published methods beside references in plain PyTorch, of which each reads like its paper."""
