"""The lifecycle calls users make; recording calls are public where they are defined."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from otel_ml._internal.error_reporting import answered, refusing
from otel_ml._internal.lifecycle.run import Run
from otel_ml._internal.lifecycle.runtime import RUNTIME
from otel_ml._internal.lifecycle.timeout_argument import timeout_of
from otel_ml._internal.signature import public, publish
from otel_ml.config import Config
from otel_ml.exceptions import ConfigError

__all__ = ["child_env", "flush", "init", "shutdown"]


@public
@publish("experiment")
@refusing(ConfigError)
def init(
    experiment: str | None = None,
    *,
    name: str | None = None,
    id: str | None = None,  # noqa: A002 (a published name)
    role: str | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    params: Any = None,
    tags: Sequence[str] = (),
    notes: str | None = None,
    exporters: str | Sequence[str] | None = None,
    prefix: str | None = None,
    topology: Any = None,
    **unknown: NoReturn,
) -> Run:
    """Start recording into a run, and return it; every process of a job calls it.

    Returns at once: the service is found, or started, in the background. What is not given comes from the
    environment (`otel-ml env` prints it), what is not there from the launcher. A second call with the same
    arguments returns the same run; one with another experiment, name or id begins another one beside it, which is
    then current in this context (`contextvars`): what module-level calls are for. Of a launch rank 0 alone may call
    it. Call it before anything is recorded: where the environment had a run begun by then, that one is ended first,
    which takes 5 s at most.

    Args:
        experiment: W&B project, MLflow experiment, folder.
        name: display name of the run; without one it is two words and a number, made of an id that otel_ml made.
        id: of a run to continue; by default the same for all processes of this launch, and new for each launch.
        role: which program of the job this is (`trainer`, `generator`, …).
        rank: of this process among those of its role.
        world_size: how many they are.
        params: hyper-parameters, as for `log_params()`.
        tags: labels; those of a later launch of the run are added.
        notes: a free text; that of a later launch replaces it.
        exporters: where the run is written: `"tensorboard,wandb"`.
        prefix: `""` leaves the role out of published names.
        topology: `{"dp": (coordinate, size)}` or a DeviceMesh; what `over="dp"` refers to.
        unknown: what there is not; raises.

    Raises:
        ConfigError: arguments are wrong; all of them in one message. A variable that is wrong is reported, and its
            default used; under `OTEL_ML_STRICT=true` it is an error, too.
    """
    arguments = {
        "experiment": experiment,
        "name": name,
        "id": id,
        "role": role,
        "rank": rank,
        "world_size": world_size,
        "tags": tags,
        "notes": notes,
        "exporters": exporters,
        "prefix": prefix,
        "topology": topology,
    }
    if unknown:
        _refuse_unknown(unknown, arguments)
    Config.from_env(**arguments)  # before they are compared with those of a run: what is wrong may not compare
    return RUNTIME.init(arguments, params)


@public
@publish("timeout")
@answered
def flush(timeout: float = 2.0) -> bool:
    """Send what was recorded so far; return whether all of it was acknowledged within `timeout` seconds."""
    return RUNTIME.flush(timeout_of("flush", timeout, 2.0))


@public
@publish("timeout")
@answered
def shutdown(timeout: float | None = None) -> bool:
    """End the current run; return whether all was acknowledged within `timeout` seconds.

    What was not is kept on this host, and sent by the next process of the job or by `otel-ml recover`.
    Happens by itself at exit. Called while an exception is on its way (in `finally`), the run has failed.

    Args:
        timeout: seconds; None: `OTEL_ML_EXIT_WAIT`, else 5. Where the service ends with the job (a batch job, a
            container of which this is the main process) the last process waits as long as delivery gets on.
    """
    return RUNTIME.shutdown(timeout_of("shutdown", timeout, None))


@public
@answered
def child_env() -> dict[str, str]:
    """Return the variables by which a process elsewhere joins the current run.

    Forks, children of `multiprocessing` and programs that only record inherit them anyway. A program that calls
    `init()` itself is a run of its own unless it is given them. One that has the rank and the role of this process, and
    is not one of several ranks of a launcher, adds to its values as a child of it.

    Examples:
        ```python
        actor = Generator.options(runtime_env={"env_vars": otel_ml.child_env()}).remote()
        ```
    """
    return RUNTIME.child_env()


_OF_OTHERS: Mapping[str, str] = {
    "project": "experiment",
    "config": "params",
    "hparams": "params",
    "group": "tags",
    "job_type": "role",
    "display_name": "name",
    "backends": "exporters",
    "loggers": "exporters",
}
"""What W&B, MLflow and others call it → what it is here."""


def _refuse_unknown(unknown: Iterable[str], arguments: Mapping[str, Any]) -> NoReturn:
    """Say which arguments there are not, with all else that is wrong in the same call.

    Args:
        unknown: names that `init()` does not have.
        arguments: those that it has, as they were given.

    Raises:
        ConfigError: always.
    """
    problems = [_problem(name, [*arguments, "params"]) for name in unknown]
    try:
        Config.from_env(**arguments)
    except ConfigError as error:
        problems += error.problems
    raise ConfigError(*problems)


def _problem(name: str, known: list[str]) -> str:
    """Name the argument that is meant.

    Examples:
        >>> _problem("experiment_name", ["experiment", "name"])
        "init(experiment_name=): there is no such argument. Did you mean 'experiment'? Known: experiment, name."
    """
    import difflib  # where something is wrong: most programs never load it

    near = [_OF_OTHERS[name]] if name in _OF_OTHERS else difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"init({name}=): there is no such argument.{hint} Known: {', '.join(known)}."
