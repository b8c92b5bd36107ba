"""GPUs: the inventory, placement, and runs on a processor that stands in for one."""
