"""TCP packet by packet over the WAN links of an emulated network. Nodes use it through ``connection``."""
