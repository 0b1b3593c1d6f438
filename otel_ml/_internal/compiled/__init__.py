"""Recording calls inside graphs that `torch.compile` makes."""
