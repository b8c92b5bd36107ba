"""The emulated network: a Plan's data centres as Mininet hosts, its WAN as links that do what they say."""
