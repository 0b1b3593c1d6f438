"""A Ray cluster of two nodes on this host, until stdin closes: `python -m tests.e2e.ray_nodes RUNTIME_DIR`.

The second node, which has the resource `far`, keeps the files of its processes in RUNTIME_DIR: it finds no service that
was left for the first.
"""

from __future__ import annotations

import sys

from ray.cluster_utils import Cluster


def main() -> None:
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "resources": {"near": 10}, "include_dashboard": False}
    )
    cluster.add_node(num_cpus=1, resources={"far": 10}, env_vars={"XDG_RUNTIME_DIR": sys.argv[1]})
    print(cluster.address, flush=True)
    sys.stdin.read()
    cluster.shutdown()


if __name__ == "__main__":
    main()
