"""The emulated network: a plan's data centres as Mininet hosts, and its WAN as shaped links."""
