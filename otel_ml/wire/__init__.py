"""What travels between a worker and the service: names, reductions, published names. Standard library only."""
