"""The section ``topology``: sites, links, traces, and networks that are named instead of written out."""
