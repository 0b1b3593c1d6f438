#!/usr/bin/env bash
# Hosts as network namespaces on a bridge, then COMMAND beside them, which reaches each by its address: hosts.sh COUNT COMMAND…
# Host n is the namespace `host<n>` with the address 10.77.0.1<n>. Run it in namespaces of its own, see hosts.py.
set -euo pipefail
count=$1
shift
mount -t tmpfs none /run
ip link set lo up
ip link add bridge0 type bridge
ip addr add 10.77.0.1/24 dev bridge0
ip link set bridge0 up

for ((host = 0; host < count; host++)); do
  ip netns add "host$host"
  ip link add "port$host" type veth peer name eth0 netns "host$host"
  ip link set "port$host" master bridge0 up
  ip -n "host$host" addr add "10.77.0.1$host/24" dev eth0
  ip -n "host$host" link set eth0 up
  ip -n "host$host" link set lo up
done
exec "$@"
