"""The service's settings: argument > `otel-ml.yaml` > environment > default; all problems at once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from otel_ml.exceptions import ConfigError
from otel_ml.explanation import explained
from otel_ml.variable import Variable, token
from otel_ml.wire.readable_name import readable_name
from otel_ml_service import env
from otel_ml_service.config_file import FileSettings, read_config_file
from otel_ml_service.exporter_makers import exporter_makers
from otel_ml_service.receiver.addresses import is_loopback
from otel_ml_service.receiver.attribute_aliases import ALIASED, may_have_alias
from otel_ml_service.receiver.tokens import tokens_in

__all__ = ["EmbeddedRun", "Limits", "ScrapedSeries", "ServiceConfig", "TlsFiles", "default_exporters"]

T = TypeVar("T")

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files; `client_ca` demands a certificate of every client (mTLS)."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


@dataclass(frozen=True, slots=True)
class ScrapedSeries:
    """Which series without a step are taken from other SDKs and scraped engines; globs, and how many at most."""

    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ("scrape_*",)
    max_series: int = 10_000


@dataclass(frozen=True, slots=True)
class Limits:
    """What a service may hold; bytes, where nothing else is said.

    Attributes:
        queue: acknowledged and not yet decided, of all runs: in memory and in the journal.
        open: open steps of a run, in memory and in `run.db`.
        retained: closed steps of a run kept for late data in memory.
        closed: the same in `run.db` only; `closed_hours`: how long.
        late: `late.otlp` of a run.
        series: (role, name, attributes) of a run.
    """

    queue: int = env.QUEUE_MAX.default
    open: int = env.OPEN_MAX.default
    retained: int = env.RETAINED_MAX.default
    closed: int = env.CLOSED_MAX.default
    closed_hours: int = env.CLOSED_HOURS.default
    late: int = env.LATE_MAX.default
    series: int = env.SERIES_MAX.default


@dataclass(frozen=True, slots=True)
class EmbeddedRun:
    """The one run of a service that a job started for itself."""

    experiment: str
    experiment_name: str
    run_name: str
    rendezvous: Path


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """What a service is started with.

    Attributes:
        exporters: name → options of its constructor.
        written: the same with what `otel-ml.yaml` has: references to variables.
        file: `otel-ml.yaml`, or None.
        dir: folder of all runs.
        dir_max: bytes of records kept on disk.
        journal_dir: folder of the journal; None for one in `dir`.
        limits: of memory, and of files that are not records.
        http: address of OTLP/HTTP; port 0 picks a free one.
        grpc: address of OTLP/gRPC, or None.
        token: bearer token, or "".
        tokens: further ones that are taken: the old one, while a new one is handed out.
        token_file: file with further ones, one a line, read again when it changes; or None.
        allowed_lateness_s: how long a step waits for a rank that is quiet.
        end_silence_s: a run of which nobody was heard for this long has ended.
        top_ranks: so many of the slowest and of the fastest ranks of each timer are published.
        findings: whether slow and silent ranks, pauses and where the time goes are looked for.
        self_telemetry: which of `otel_ml/*` backends get, `problems` or `full`.
        aliases: what otel_ml calls an attribute → the key by which other programs send it.
        tls: certificates of both receivers, or None.
        embedded: set in embedded mode.
        problems: sentences about variables that are not used as they are: of a job's environment, in embedded mode.
    """

    exporters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    written: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    file: Path | None = None
    dir: Path = Path("otel-ml-runs")
    dir_max: int = env.DIR_MAX.default
    journal_dir: Path | None = None
    limits: Limits = field(default_factory=Limits)
    http: Address = env.LISTEN_HTTP.default
    grpc: Address | None = None
    token: str = field(default="", repr=False)
    tokens: tuple[str, ...] = field(default=(), repr=False)
    token_file: Path | None = None
    allowed_lateness_s: float = env.ALLOWED_LATENESS.default / 1000
    end_silence_s: float = env.END_SILENCE.default / 1000
    top_ranks: int = env.TOP_RANKS.default
    findings: bool = env.FINDINGS.default
    self_telemetry: str = env.SELF.default
    scraped: ScrapedSeries = field(default_factory=ScrapedSeries)
    aliases: Mapping[str, str] = field(default_factory=dict)
    tls: TlsFiles | None = None
    embedded: EmbeddedRun | None = None
    problems: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        problems = [
            f"{variable}={host}:{port} is not a loopback address, so anybody could write to your runs. "
            "Set OTEL_ML_TOKEN, or listen.tls with client_ca in otel-ml.yaml."
            for variable, (host, port) in self._addresses()
            if not is_loopback(host) and not self._demands_credentials
        ]
        if problems:
            raise ConfigError(*problems, slug="open-to-anybody")

    @property
    def _demands_credentials(self) -> bool:
        # An embedded service makes a token of its own.
        has_token = bool(self.token or self.tokens or self.token_file)
        return has_token or bool(self.embedded or (self.tls and self.tls.client_ca))

    def _addresses(self) -> Sequence[tuple[str, Address]]:
        found = [(env.LISTEN_HTTP.name, self.http)]
        return found if self.grpc is None else [*found, (env.LISTEN_GRPC.name, self.grpc)]

    @staticmethod
    def load(
        *,
        exporters: Sequence[str] = (),
        file: Path | None = None,
        directory: Path | None = None,
        http: str | None = None,
        grpc: str | None = None,
        rendezvous: Path | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> ServiceConfig:
        """Return the effective settings.

        Args:
            exporters: names from the command line; their options may be in the file.
            file: `otel-ml.yaml`.
            directory: of all runs.
            http: `host:port`.
            grpc: `host:port`.
            rendezvous: folder of embedded mode.
            environ: instead of the process' environment.

        Raises:
            ConfigError: with every problem found.
        """
        environ = os.environ if environ is None else environ
        problems: list[str] = []
        said = read_config_file(file, environ, problems) if file is not None else FileSettings()
        source = _Source(said, environ, problems)
        embedded = None if rendezvous is None else _embedded(rendezvous, source, problems)
        # A job's own service starts whatever is in the environment: nobody looks why it does not.
        of_the_job: list[str] = []
        source = source if embedded is None else _Source(said, environ, of_the_job)
        silence_default = env.EMBEDDED_END_SILENCE if embedded else env.END_SILENCE.default
        http_default = ("127.0.0.1", 0) if embedded else env.LISTEN_HTTP.default
        found: dict[str, Any] = {
            "exporters": (named := _exporters(exporters, said, source)),
            "written": {name: said.written.get(name, {}) for name in named},
            "file": file,
            "dir": source.folder(env.DIR, "dir", directory) or Path(env.DIR.default).absolute(),
            "dir_max": source.value(env.DIR_MAX, "dir_max"),
            "journal_dir": source.folder(env.JOURNAL_DIR, "journal_dir"),
            "limits": Limits(
                queue=source.value(env.QUEUE_MAX, "queue_max"),
                open=source.value(env.OPEN_MAX, "open_max"),
                retained=source.value(env.RETAINED_MAX, "retained_max"),
                closed=source.value(env.CLOSED_MAX, "closed_max"),
                closed_hours=source.value(env.CLOSED_HOURS, "closed_hours"),
                late=source.value(env.LATE_MAX, "late_max"),
                series=source.value(env.SERIES_MAX, "series_max"),
            ),
            "http": source.value(env.LISTEN_HTTP, "http", http, default=http_default),
            "grpc": None if embedded else _grpc(source, grpc),
            # A job's own service makes its own: what the job was given is that of another one.
            "token": "" if embedded else source.value(env.TOKEN, "token"),
            "tokens": () if embedded else _tokens(said, problems),
            "token_file": _token_file(source, embedded, problems),
            "allowed_lateness_s": source.value(env.ALLOWED_LATENESS, "allowed_lateness") / 1000,
            "end_silence_s": source.value(env.END_SILENCE, "end_silence", default=silence_default) / 1000,
            "top_ranks": source.value(env.TOP_RANKS, "top_ranks"),
            "findings": source.value(env.FINDINGS, "findings"),
            "self_telemetry": source.value(env.SELF, "self_telemetry"),
            "scraped": _scraped(said, file, problems),
            "aliases": _aliases(said, file, problems),
            "tls": _tls(said, file, problems),
            "embedded": embedded,
            "problems": tuple(f"{problem} Its default is used." for problem in of_the_job),
        }
        try:
            config = ServiceConfig(**found)
        except ConfigError as error:
            problems += [explained(problem, error.slug) for problem in error.problems]
        if problems:
            # Without any, the service looks at the exporters itself; a job's own goes on without those that are wrong.
            raise ConfigError(*problems, *exporter_makers(found["exporters"])[1].problems)
        return config


def default_exporters() -> tuple[str, ...]:
    """Return `jsonl`, and `tensorboard` if its package is installed."""
    return ("jsonl", "tensorboard") if find_spec("tensorboard") is not None else ("jsonl",)


class _Source:
    """Looks a setting up: argument, file, environment, default."""

    def __init__(self, said: FileSettings, environ: Mapping[str, str], problems: list[str]) -> None:
        self._said = said
        self._environ = environ
        self._problems = problems

    def value(self, variable: Variable[T], key: str, argument: str | None = None, *, default: T | None = None) -> T:
        given = argument if argument is not None else self._said.values.get(key)
        setting = variable.read(self._environ if given is None else {variable.name: given})
        if setting.problem is not None:
            # The problem speaks of the variable; what is wrong stands elsewhere.
            place = key if argument is not None else self._said.place_of(key)
            where = setting.problem if given is None else setting.problem.replace(variable.name, place, 1)
            self._problems.append(where)
        return default if default is not None and setting.source == "default" else setting.value

    def folder(self, variable: Variable[str], key: str, argument: Path | None = None) -> Path | None:
        text = self.value(variable, key, str(argument) if argument else None)
        try:
            return Path(text).expanduser().absolute() if text else None
        except RuntimeError:
            self._problems.append(f"{variable.name}: there is no home folder for {text!r}.")
            return None

    def is_given(self, variable: Variable[Any], key: str, argument: str | None) -> bool:
        return argument is not None or key in self._said.values or bool(self._environ.get(variable.name))


def _exporters(arguments: Sequence[str], said: FileSettings, source: _Source) -> Mapping[str, Mapping[str, Any]]:
    options = said.exporters or {}
    if arguments:
        return {name: options.get(name, {}) for name in arguments}
    if said.exporters is not None:
        return options
    names = source.value(env.EXPORTERS, "exporters") or default_exporters()
    return {name: {} for name in names}


def _grpc(source: _Source, argument: str | None) -> Address | None:
    # Without the extra, gRPC is simply not there; who asks for it is told by the receiver what to install.
    if find_spec("grpc") is None and not source.is_given(env.LISTEN_GRPC, "grpc", argument):
        return None
    return source.value(env.LISTEN_GRPC, "grpc", argument)


def _embedded(rendezvous: Path, source: _Source, problems: list[str]) -> EmbeddedRun:
    experiment = source.value(env.EXPERIMENT_ID, "experiment_id")
    if not experiment:
        problems.append(f"{env.EXPERIMENT_ID.name} is not set. Who starts an embedded service gives it its run.")
    return EmbeddedRun(
        experiment=experiment,
        experiment_name=source.value(env.EXPERIMENT_NAME, "experiment_name"),
        run_name=source.value(env.RUN_NAME, "run_name") or readable_name(experiment),
        rendezvous=rendezvous,
    )


def _tokens(said: FileSettings, problems: list[str]) -> tuple[str, ...]:
    try:
        found = tuple(token(text.strip()) for text in said.tokens)
    except ValueError as error:
        problems.append(f"tokens: expected {error}.")
        return ()
    if not all(found):  # whoever shows none would be let in
        problems.append("tokens: expected tokens, got a blank one.")
    return found


def _token_file(source: _Source, embedded: EmbeddedRun | None, problems: list[str]) -> Path | None:
    """Return the file of `serve`; a job's own service has a token of its own, and its environment that of another."""
    path = None if embedded else source.folder(env.TOKEN_FILE, "token_file")
    if path is not None:
        try:
            tokens_in(path)
        except (OSError, ValueError) as error:
            problems.append(f"token_file: {str(path)!r} cannot be used: {error}.")
    return path


def _scraped(said: FileSettings, file: Path | None, problems: list[str]) -> ScrapedSeries:
    found = {key: value for key, value in said.scraped.items() if value is not None}
    for key in ("allow", "deny"):
        globs = found.get(key, [])
        if not isinstance(globs, list) or not all(isinstance(glob, str) for glob in globs):
            problems.append(f"{file}: scraped.{key}: expected a list of globs, such as ['vllm/*'], got {globs!r}.")
        elif key in found:
            found[key] = tuple(globs)
    most = found.get("max_series", 1)
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        problems.append(f"{file}: scraped.max_series: expected a whole number of at least 1, got {most!r}.")
    # With any problem `load` raises in the end: what is returned until then is not used.
    return ScrapedSeries() if problems else ScrapedSeries(**found)


def _aliases(said: FileSettings, file: Path | None, problems: list[str]) -> Mapping[str, str]:
    found = {key: value for key, value in said.aliases.items() if value is not None}
    for key, value in found.items():
        if not may_have_alias(key):
            known = ", ".join(ALIASED)
            problems.append(
                f"{file}: aliases.{key}: is not a setting. Known: {known}, topology.<dim>, topology.<dim>.size."
            )
        elif not isinstance(value, str) or not value:
            problems.append(
                f"{file}: aliases.{key}: expected the name of an attribute, such as 'dl.rank', got {value!r}."
            )
    return found


def _tls(said: FileSettings, file: Path | None, problems: list[str]) -> TlsFiles | None:
    if not said.tls:
        return None
    # Relative paths begin where the file is, wherever the service was started.
    folder = Path() if file is None else file.parent
    paths = {key: folder / name for key, name in said.tls.items()}
    problems += [f"{file}: listen.tls: {key} is missing." for key in ("certificate", "key") if key not in paths]
    unreadable = {key: path for key, path in paths.items() if not path.is_file()}
    problems += [f"{file}: listen.tls.{key}: no file {str(path)!r}." for key, path in unreadable.items()]
    if {"certificate", "key"} <= paths.keys():
        return TlsFiles(paths["certificate"], paths["key"], paths.get("client_ca"))
    return None
