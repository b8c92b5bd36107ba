"""Output for people: tables and numbers on a terminal or in a notebook, and the progress of runs and sweeps."""
