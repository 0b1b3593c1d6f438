#!/usr/bin/env bash
# Two hosts with two ranks each, as network namespaces on a bridge: two_hosts.sh FOLDER COMMAND…
# Needs no root: run it under `unshare --user --map-root-user --net --mount --fork`.
set -euo pipefail
folder=$1
shift
mount -t tmpfs none /run
ip link set lo up
ip link add bridge0 type bridge
ip link set bridge0 up

ranks=()
for host in 0 1; do
  ip netns add "host$host"
  ip link add "port$host" type veth peer name eth0 netns "host$host"
  ip link set "port$host" master bridge0 up
  ip -n "host$host" addr add "10.77.0.1$host/24" dev eth0
  ip -n "host$host" link set eth0 up
  ip -n "host$host" link set lo up
  mkdir -m 700 "$folder/runtime$host"
done
for rank in 0 1 2 3; do
  host=$((rank / 2))
  RANK=$rank WORLD_SIZE=4 LOCAL_RANK=$((rank % 2)) LOCAL_WORLD_SIZE=2 GROUP_RANK=$host \
    MASTER_ADDR=10.77.0.10 MASTER_PORT=29500 XDG_RUNTIME_DIR=$folder/runtime$host \
    ip netns exec "host$host" unshare --uts bash -c 'hostname "host$GROUP_RANK"; exec "$@"' - "$@" &
  ranks+=($!)
done
for rank in "${ranks[@]}"; do wait "$rank"; done
