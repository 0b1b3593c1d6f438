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

from otel_ml.compat.tracking.original_names import name_of_the_original
from otel_ml.compat.tracking.place_of_the_original import find_submodules
from otel_ml.compat.wandb import data_types, errors, plot, sdk, util
from otel_ml.compat.wandb import pickled_run as _pickled_run  # noqa: F401 (without it a run cannot be pickled)
from otel_ml.compat.wandb.artifact import Artifact
from otel_ml.compat.wandb.box import box3d
from otel_ml.compat.wandb.errors import CommError, Error, UsageError
from otel_ml.compat.wandb.graph import Graph
from otel_ml.compat.wandb.histogram import Histogram
from otel_ml.compat.wandb.joined_table import JoinedTable
from otel_ml.compat.wandb.login import api, login
from otel_ml.compat.wandb.media import Audio, Classes, Html, Image, Video
from otel_ml.compat.wandb.media_of_files import Bokeh, Molecule, Object3D, Plotly
from otel_ml.compat.wandb.module_functions import (
    AlertLevel,
    alert,
    define_metric,
    ensure_configured,
    finish,
    link_model,
    log,
    log_artifact,
    log_code,
    log_model,
    mark_preempting,
    restore,
    save,
    setup,
    teardown,
    unwatch,
    use_artifact,
    use_model,
    watch,
)
from otel_ml.compat.wandb.parameters import Config
from otel_ml.compat.wandb.plot import plot_table
from otel_ml.compat.wandb.public_api import Api
from otel_ml.compat.wandb.recording_run import Run
from otel_ml.compat.wandb.start import Settings, init, state
from otel_ml.compat.wandb.table import EvalTable, Table
from otel_ml.compat.wandb.terminal import termerror, termlog, termwarn

__all__ = [
    "AlertLevel",
    "Api",
    "Artifact",
    "Audio",
    "Bokeh",
    "Classes",
    "CommError",
    "Config",
    "Error",
    "EvalTable",
    "Graph",
    "Histogram",
    "Html",
    "Image",
    "JoinedTable",
    "Molecule",
    "Object3D",
    "Plotly",
    "Run",
    "Settings",
    "Table",
    "UsageError",
    "Video",
    "alert",
    "api",
    "box3d",
    "data_types",
    "define_metric",
    "ensure_configured",
    "errors",
    "finish",
    "init",
    "join",
    "link_model",
    "log",
    "log_artifact",
    "log_code",
    "log_model",
    "login",
    "mark_preempting",
    "plot",
    "plot_table",
    "require",
    "restore",
    "save",
    "sdk",
    "setup",
    "teardown",
    "termerror",
    "termlog",
    "termwarn",
    "unwatch",
    "use_artifact",
    "use_model",
    "util",
    "watch",
]

__version__ = "0.31.0"
"""The version of W&B whose interface this is."""

join = finish


def require(*features: Any, **options: Any) -> None:
    """Do nothing: features that W&B asks scripts to require are there."""
    del features, options


def __getattr__(name: str) -> Any:
    """Return what changes with the run: `wandb.run`, `wandb.config`, `wandb.summary`; all other names are W&B's own."""
    # Not variables of the module, which would stay what they were when it was imported: each run has its own.
    if name == "run":
        return state.run
    if name == "config":
        return state.config
    if name == "summary":
        return state.summary
    return name_of_the_original("wandb", name, is_of_the_server=name in _OF_WANDB)


_OF_WANDB = frozenset({"ArtifactTTL", "agent", "controller", "sweep"})
"""What speaks with W&B's server: W&B's own, where it is installed."""

# By the names that stand behind `wandb.` in an import.
_SUBMODULES = {
    "data_types": data_types,
    "errors": errors,
    "plot": plot,
    "sdk": sdk,
    "sdk.wandb_run": sdk.wandb_run,
    "util": util,
}

# For a program that sets `sys.modules["wandb"]` to this module: `import wandb.util` finds ours, and `import
# wandb.sdk.lib` W&B's own.
find_submodules("wandb", _SUBMODULES.get)
