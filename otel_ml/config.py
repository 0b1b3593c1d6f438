"""What the user asked for: argument > environment > default, checked once, frozen."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from otel_ml import env
from otel_ml.endpoint import Endpoint, endpoint_of, value_of
from otel_ml.exceptions import ConfigError
from otel_ml.variable import Variable, comma_separated

__all__ = ["Config", "Endpoint", "Topology"]

T = TypeVar("T")
Topology = Mapping[str, tuple[int, int | None]]
"""Dimension → (this rank's coordinate, size of the dimension or None)."""


@dataclass(frozen=True, slots=True)
class Config:
    """The worker's settings; empty text and None mean: not said, to be detected.

    Attributes:
        dir: absolute.
        flush_interval: seconds.
        problems: sentences about environment values that are not used as they are.
    """

    experiment: str = "default"
    name: str = ""
    id: str = ""
    role: str = "trainer"
    rank: int | None = None
    world_size: int | None = None
    local_rank: int | None = None
    tags: tuple[str, ...] = ()
    notes: str | None = None
    prefix: str | None = None
    topology: Topology = field(default_factory=dict)
    exporters: tuple[str, ...] = ()
    mode: str = "auto"
    console: str = "auto"
    dir: Path = field(default_factory=Path)
    flush_interval: float = 1.0
    timer_level: int = 1
    traces: str = "timers"
    spans_per_step: int = 100
    spool_max: int = 256 * 2**20
    exit_wait: int | None = None
    strict: bool = False
    capture: str = "auto"
    parent: str = ""
    disabled: bool = False
    log_level: str = "info"
    resource_attributes: Mapping[str, str] = field(default_factory=dict)
    endpoint: Endpoint = field(default_factory=Endpoint)
    problems: tuple[str, ...] = ()

    @property
    def is_remote(self) -> bool:
        """Whether telemetry goes to an endpoint the user named, not to a service started here."""
        return self.mode == "remote" or (self.mode == "auto" and bool(self.endpoint.shown))

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is to be printed."""
        return self.console == "off" or self.log_level in {"error", "fatal"}

    @classmethod
    def from_env(
        cls,
        environ: Mapping[str, str] | None = None,
        *,
        experiment: str | None = None,
        name: str | None = None,
        id: str | None = None,  # noqa: A002 (a published name)
        role: str | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        tags: Sequence[str] = (),
        notes: str | None = None,
        exporters: str | Sequence[str] | None = None,
        prefix: str | None = None,
        topology: object = None,
    ) -> Config:
        """Merge arguments, environment and defaults.

        Raises:
            ConfigError: arguments are wrong; all of them in one message. Wrong environment values
                are in `problems`, and their defaults in force (OpenTelemetry's rule).
        """
        environ = os.environ if environ is None else environ
        problems: list[str] = []

        def value(variable: Variable[T]) -> T:
            found: T = value_of(variable, environ, problems)
            return found

        wrong: list[str] = []
        experiment, name, id, role, notes = (  # noqa: A001 (a published name)
            _text(label, given, wrong)
            for label, given in (
                ("experiment", experiment), ("name", name), ("id", id), ("role", role), ("notes", notes)
            )
        )  # fmt: skip
        rank = _integer("rank", rank, 0, wrong)
        world_size = _integer("world_size", world_size, 1, wrong)
        if rank is not None and world_size is not None and rank >= world_size:
            wrong.append(f"init(rank={rank}, world_size={world_size}): expected a rank below the world size.")
        if prefix is not None and not (isinstance(prefix, (str, int)) and not prefix):
            wrong.append(
                f'init(prefix={_shown(prefix)}): expected "" (names carry no role) or None. A name says its own prefix.'
            )
        found_topology = _topology(topology, wrong)
        attributes = value(env.RESOURCE_ATTRIBUTES)
        endpoint = endpoint_of(environ, problems)
        config = cls(
            experiment=_as_utf8(experiment or value(env.EXPERIMENT_NAME)),
            name=_as_utf8(name or value(env.RUN_NAME)),
            id=_as_utf8(id or value(env.EXPERIMENT_ID)),
            # OpenTelemetry's own order: `OTEL_SERVICE_NAME` wins over `service.name` among the resource's attributes.
            role=_as_utf8(role or value(env.SERVICE_NAME) or attributes.get("service.name", "") or "trainer"),
            rank=value(env.RANK) if rank is None else rank,
            world_size=value(env.WORLD_SIZE) if world_size is None else world_size,
            local_rank=value(env.LOCAL_RANK),
            tags=_texts("tags", tags, wrong),
            notes=notes,
            prefix=prefix,
            topology=found_topology,
            exporters=value(env.EXPORTERS) if exporters is None else _texts("exporters", exporters, wrong),
            mode=_mode(value(env.MODE), endpoint, problems),
            console=value(env.CONSOLE),
            dir=_folder(value(env.DIR), problems),
            flush_interval=value(env.FLUSH_INTERVAL) / 1000,
            timer_level=value(env.TIMER_LEVEL),
            traces=value(env.TRACES),
            spans_per_step=value(env.SPANS_PER_STEP),
            spool_max=value(env.SPOOL_MAX),
            exit_wait=value(env.EXIT_WAIT),
            strict=value(env.STRICT),
            capture=value(env.CAPTURE),
            parent=value(env.PARENT),
            disabled=value(env.SDK_DISABLED),
            log_level=value(env.LOG_LEVEL),
            resource_attributes={key: text for key, text in attributes.items() if key != "service.name"},
            endpoint=endpoint,
            problems=tuple(problems),
        )
        # With what is wrong in the environment: who corrects the call sees all of it at once.
        if wrong:
            raise ConfigError(*wrong, *problems)
        return config


def _shown(given: object) -> str:
    """Return the `repr` of an argument, cut, or its type where it has none."""
    try:
        return repr(given[:_MOST] if isinstance(given, (str, bytes)) else given)[:_MOST]
    except Exception:  # noqa: BLE001 (of a class of the program's)
        return f"<{type(given).__name__}>"


_MOST = 200


def _text(label: str, given: object, wrong: list[str]) -> str | None:
    if given is None:
        return None
    if not isinstance(given, str):
        wrong.append(f"init({label}=): expected text, got {_shown(given)}.")
    elif "\0" in given:  # child processes get it in their environment
        wrong.append(f"init({label}=): expected text without NUL characters, got {_shown(given)}.")
    else:
        return given
    return None


def _mode(mode: str, endpoint: Endpoint, problems: list[str]) -> str:
    if mode != "remote" or endpoint.shown:
        return mode
    problems.append(
        f"{env.MODE.name}: 'remote' needs an endpoint. Set {env.ENDPOINT.name}. Meanwhile a service of this host is "
        "used."
    )
    return "embedded"


def _folder(name: str, problems: list[str]) -> Path:
    try:
        folder = Path(name).expanduser()
    except RuntimeError:
        problems.append(f"{env.DIR.name}: there is no home folder for {name!r}. Its default is used.")
        folder = Path(env.DIR.default)
    try:
        return folder.absolute()
    except FileNotFoundError:
        home = Path("/", os.path.expanduser("~"))  # noqa: PTH111 (Path's own raises where there is none)
        problems.append(
            f"{env.DIR.name}: the working directory was removed, and {str(folder)!r} with it. {home} is used."
        )
        return home / folder


def _as_utf8(text: str) -> str:
    """Return a name as it travels: bytes of the environment that are not UTF-8 are question marks to everybody."""
    return text.encode("utf-8", "replace").decode("utf-8") if isinstance(text, str) else text


def _integer(label: str, given: object, minimum: int, wrong: list[str]) -> int | None:
    if given is None:
        return None
    try:
        number = given.__index__()  # type: ignore[attr-defined]  # numpy integers too
    except Exception:  # noqa: BLE001 (it has none, or is of a class of the program's)
        number = None
    if not isinstance(number, int) or isinstance(given, bool) or not minimum <= number < 2**63:
        wrong.append(f"init({label}=): expected a whole number of at least {minimum}, got {_shown(given)}.")
        return None
    return int(number)


def _texts(label: str, given: object, wrong: list[str]) -> tuple[str, ...]:
    if isinstance(given, str):
        return comma_separated(given)
    if isinstance(given, Sequence) and all(isinstance(item, str) for item in given):
        return tuple(given)
    wrong.append(f"init({label}=): expected names, in a list or separated by commas, got {_shown(given)}.")
    return ()


def _topology(given: Any, wrong: list[str]) -> Topology:
    if given is None:
        return {}
    found: dict[str, tuple[int, int | None]] = {}
    try:
        dims = getattr(given, "mesh_dim_names", None)
        if dims is not None:  # torch.distributed.DeviceMesh
            sizes = [int(given.size(index)) for index in range(len(dims))]
            places = zip(given.get_coordinate() or (), sizes, strict=False)  # no coordinate: not in the mesh
            return {str(dim): (int(at), size) for dim, (at, size) in zip(dims, places, strict=False)}
        for dim, place in dict(given).items():
            at, size = place if isinstance(place, (tuple, list)) else (place, None)
            found[str(dim)] = (int(at), None if size is None else int(size))
    except Exception:  # noqa: BLE001 (of a class of the program's)
        wrong.append(
            f"init(topology=): expected {{'dp': (coordinate, size), …}}, {{'dp': coordinate}} or a DeviceMesh, "
            f"got {_shown(given)}."
        )
    return found
