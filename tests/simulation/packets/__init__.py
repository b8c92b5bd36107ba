"""TCP packet by packet."""
