"""`otel-ml report`: what runs recorded, as one HTML file that needs nothing else."""
