"""`otel-ml demo`: four trainers and an evaluator on real data, one run, and what can be read from it.

::

    launch ─┬─ trainer × 4   a user's program: data-parallel, one rank slowed for a while
            ├─ evaluator     a user's program: killed once, started again
            └─ summary       reads what was recorded: accuracy, who was slow; verify compares the backends
"""
