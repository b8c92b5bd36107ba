"""Link shaping: rates by HTB, delays and losses by netem or by a delay line, all of which change live."""
