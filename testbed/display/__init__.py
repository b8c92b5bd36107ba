"""What a person sees of runs and sweeps: tables and numbers on a terminal or in a notebook, and progress."""
