"""Which technique for a network: candidates are simulated, and ranked by what the user wants least of."""
