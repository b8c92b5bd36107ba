"""Link shaping: rate by HTB, delay and loss by netem or by the delay line, all changed live."""
