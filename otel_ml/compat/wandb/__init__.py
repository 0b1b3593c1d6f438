"""W&B's interface over otel_ml: `from otel_ml.compat import wandb`, and the script goes on.

```python
from otel_ml.compat import wandb

with wandb.init(project="digits", config={"lr": 0.1}) as run:
    for step in range(100):
        run.log({"loss": 1 / (1 + step)})
```

Every rank may call everything: values of the ranks are averaged, one run comes out, in every exporter.
"""

from __future__ import annotations

from typing import Any

from otel_ml.compat.wandb import plot, util
from otel_ml.compat.wandb.alert_level import AlertLevel
from otel_ml.compat.wandb.artifact import Artifact
from otel_ml.compat.wandb.errors import CommError, Error, UsageError
from otel_ml.compat.wandb.media import Audio, Bokeh, Histogram, Html, Image, Molecule, Object3D, Plotly, Video
from otel_ml.compat.wandb.parameters import Config
from otel_ml.compat.wandb.recording_run import Run
from otel_ml.compat.wandb.start import (
    Settings,
    alert,
    define_metric,
    ensure_configured,
    finish,
    init,
    log,
    log_artifact,
    log_code,
    log_model,
    login,
    mark_preempting,
    save,
    setup,
    state,
    teardown,
    unwatch,
    watch,
)
from otel_ml.compat.wandb.table import Table

__all__ = [
    "AlertLevel",
    "Artifact",
    "Audio",
    "Bokeh",
    "CommError",
    "Config",
    "Error",
    "Histogram",
    "Html",
    "Image",
    "Molecule",
    "Object3D",
    "Plotly",
    "Run",
    "Settings",
    "Table",
    "UsageError",
    "Video",
    "alert",
    "define_metric",
    "ensure_configured",
    "finish",
    "init",
    "log",
    "log_artifact",
    "log_code",
    "log_model",
    "login",
    "mark_preempting",
    "plot",
    "save",
    "setup",
    "teardown",
    "unwatch",
    "util",
    "watch",
]


def __getattr__(name: str) -> Any:
    """Return what changes with the run: `wandb.run`, `wandb.config`, `wandb.summary`."""
    if name == "run":
        return state.run
    if name == "config":
        return state.config
    if name == "summary":
        return None if state.run is None else state.run.summary
    raise AttributeError(f"otel_ml.compat.wandb has no {name!r}; the package 'wandb' may be imported beside it")
