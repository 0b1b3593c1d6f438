"""Statistics of the elements of many tensors of a device, in as many launches as there are types of numbers.

`TensorStatistics.of(tensors)` begins to compute them, and returns the `Arrival` that will have them: nothing waits. By
kernels of our own where Triton runs, else by operations of torch. What is recorded of them is made on the host, by the
thread that reads, of one copy a step.

To build another statistic upon it: `layout_of()` says whether kernels can look at some tensors, `Tables` has the
addresses and chunks that a kernel reads, `launch()` launches it, `arrival_of()` brings what it found.
"""
