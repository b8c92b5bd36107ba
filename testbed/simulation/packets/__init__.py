"""TCP packet by packet over the WAN links of an emulated network; ``connection`` is what nodes use."""
