"""Collective operations over a World's messages, and data-parallel training by all-reduce."""
