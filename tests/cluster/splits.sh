#!/usr/bin/env bash
# Two brokers on real servers, as in run.sh; the network between one of them and ZooKeeper or bookies loses every packet for a while.
# What happens is in splits.py. Everything is in networks of its own, which go with it; that takes root on Linux.
#   splits.sh PATH-OF-PHAROS
# Prints "ok NAME" for each check; ends at the first that fails, with status 1; with status 77 where there can be no such networks.
set -euo pipefail
pharos=$(realpath "${1:?path of the pharos binary}")
here="$(cd "$(dirname "$0")" && pwd)"
# shellcheck source=tests/cluster/install.sh
. "$here/install.sh"
alone=(unshare --net --mount)
"${alone[@]}" sh -c 'mkdir -p /run/netns && mount -t tmpfs none /run/netns && ip netns add try && ip link add near type veth peer name far' 2> /dev/null || {
    echo "no network of its own can be had here: that takes root, iproute2 and virtual devices"
    exit 77
}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"${alone[@]}" sh -c 'mount -t tmpfs none /run/netns && exec "$@"' sh "$python/bin/python" "$here/splits.py" "$pharos" "$jars" "$dir"
