# The testbed with everything that it needs, emulation included. docs/how-to/platforms.md explains the privileges.
#
#   docker build -t testbed .
#   docker run --rm --privileged testbed testbed run quickstart
#   docker run --rm --privileged testbed python -m pytest -n 3 --dist loadfile
#   docker run --rm testbed testbed run quickstart --on simulate
FROM debian:12-slim

# setup.sh installs what is missing; these lines only keep the packages in a layer of their own.
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        ca-certificates git iperf3 iproute2 iptables iputils-ping mininet nftables python3 \
        python3-venv tcpdump util-linux \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /testbed
COPY . .
RUN ./setup.sh && rm -rf /root/.cache
ENV PATH=/testbed/.venv/bin:$PATH
CMD ["bash"]
