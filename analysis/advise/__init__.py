"""Which technique to use on a network: simulates the candidates, and ranks them by time, bytes or money."""
