"""DGT (differential gradient transmission): pushes over the WAN in blocks, of which the less important may be lost."""
