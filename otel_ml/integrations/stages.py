"""Stages: what is recorded while a program evaluates stays apart from what is recorded while it trains.

The integrations of Hugging Face and Lightning know when their frameworks evaluate. A loop of one's own says it:

```python
with stage("eval"):
    for batch in validation_loader:
        shared_step(batch)  # otel_ml.log({"loss": …}) in it is `eval/loss`
```
"""

from __future__ import annotations

from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.safe_repr import safe_repr
from otel_ml._internal.steps.stage import Outside, Stage

__all__ = ["outside", "stage"]


def stage(name: str) -> Stage:
    """Record what this context records inside a `with` block as `<name>/…`, at the step that is current.

    Timers follow, too. What a call gives an `axis` or a `prefix`, and a name that says its stage already (`val/loss`,
    `test_accuracy`), stay as they are. Tasks started inside inherit the stage, plain threads do not; of nested stages
    the innermost counts.

    Args:
        name: such as `eval`; anything but a non-empty string is reported, and names stay as they are.
    """
    if isinstance(name, str) and name:
        return Stage(name)
    reporter.wrong(
        "bad-name", f"stage(): expected a name such as 'eval', got {safe_repr(name)}. Pass a non-empty string."
    )
    return Stage("")


def outside() -> Outside:
    """Leave the stage for a `with` block: what a framework has reduced has the name that the framework gave it."""
    return Outside()
