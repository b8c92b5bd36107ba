# Starts a SuperNode that joins the SuperLink of the first process. On loopback, SuperNodes share the ports of one machine.
exec flower-supernode --insecure --superlink "$MASTER_ADDR:8000" --port $((9094 + RANK)) \
  --node-config "partition-id=$((RANK - 1)) num-partitions=$((WORLD_SIZE - 1))"
