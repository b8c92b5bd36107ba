# Starts a SuperLink, and submits the app in this folder to it.
set -e
mkdir -p "$FLWR_HOME"
printf '[superlink.here]\naddress = "127.0.0.1:8000"\ninsecure = true\n' > "$FLWR_HOME/config.toml"
flower-superlink --insecure --host 0.0.0.0 --port 8000 --disable-runtime-dependency-installation &
python -c 'import socket, time
while socket.socket().connect_ex(("127.0.0.1", 8000)): time.sleep(0.1)'
flwr run . here --stream
