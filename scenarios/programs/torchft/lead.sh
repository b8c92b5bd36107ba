# Starts the lighthouse, which tells replica groups of each other, and the first replica group beside it.
torchft_lighthouse --bind 0.0.0.0:29510 --min_replicas "$MIN_REPLICAS" --join_timeout_ms 10000 &
exec python diloco.py
