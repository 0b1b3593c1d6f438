"""Online or offline: what the user said, what the run was before, whether there is a key and a server."""

from __future__ import annotations

import contextlib
import netrc
import os
import socket
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast
from urllib.parse import urlsplit

from otel_ml.exceptions import ConfigError
from otel_ml.explanation import explained
from otel_ml_exporters.errors import RetryableExportError

__all__ = ["MODES", "Decision", "Mode", "decide", "foreseen", "kept_offline"]

Mode = Literal["online", "offline", "disabled"]

MODES: Mapping[str, str] = {
    "auto": "auto",
    "online": "online",
    "offline": "offline",
    "disabled": "disabled",
    "run": "online",
    "dryrun": "offline",
}
"""Values of the option `mode` and of `WANDB_MODE` (the last two are old names that W&B still takes)."""

_PROBE_TIMEOUT = 2.0

_NO_KEY = "no API key (run `wandb login` or set WANDB_API_KEY)"
_SERVER = "https://api.wandb.ai"
"""Where W&B goes that nobody told another place."""


@dataclass(frozen=True, slots=True)
class Decision:
    """How to open the run.

    Attributes:
        mode: for `wandb.init`.
        notice: a sentence for a person, where the mode is not what they may expect.
        may_fall_back: whether offline is an answer to a server that does not answer.
    """

    mode: Mode
    notice: str | None = None
    may_fall_back: bool = False


def decide(
    option: str, before: str | None, *, api_key: str | None, base_url: str, logs: str = "wandb/offline-run-*"
) -> Decision:
    """Return how to open the run.

    Args:
        option: `mode` as configured.
        before: the mode this run was opened in by an earlier process, or None.
        api_key: as W&B's settings have it; key files are looked up here.
        base_url: W&B's server.
        logs: folders of the run's offline logs, as a shell finds them.

    Raises:
        ConfigError: an unknown mode, or offline for a run that is on the server already.
        RetryableExportError: the run is on the server, which does not answer now.
    """
    wanted = _wanted(option)
    if wanted == "offline" and before == "online":
        raise ConfigError(
            "wandb: this run is on the server already and cannot go on offline. Unset WANDB_MODE and `mode`, or "
            "begin a run of another id.",
            slug="wandb-offline",
        )
    # Whoever says online wants to hear that it fails, and not to find the run in a file.
    if wanted != "auto":
        return Decision(cast("Mode", wanted))
    # Its rows are in a file of this host: on the server it would be a run without them.
    if before == "offline":
        return Decision("offline", explained("W&B: the run goes on offline, as it began.", "wandb-offline"))
    why_not = _why_not_online(api_key, base_url)
    if why_not is None:
        # A run that is on the server already must not go on in a file.
        return Decision("online", may_fall_back=before is None)
    if before == "online":
        raise RetryableExportError(f"W&B: {why_not}; the run is on the server and waits for it.")
    return Decision("offline", kept_offline(why_not, logs))


def kept_offline(why: str, logs: str) -> str:
    """Return what a person is told of a run that is not on the server, with the line that uploads it."""
    return explained(
        f"W&B: {why}; the run is kept offline. Upload it afterwards: wandb login; wandb sync {logs}", "wandb-offline"
    )


def foreseen(option: str, before: str | None, logs: str) -> str | None:
    """Return what `decide` will say where that is sure without W&B, whose import takes seconds: there is no key."""
    url = os.environ.get("WANDB_BASE_URL") or _SERVER
    is_sure = before is None and not any(path.exists() for path in _settings_files())  # they may name another server
    if _wanted(option) != "auto" or not is_sure or _has_credentials(url):
        return None
    return kept_offline(_NO_KEY, logs)


def _settings_files() -> tuple[Path, ...]:
    """Return where W&B keeps what was set by hand."""
    config = os.environ.get("WANDB_CONFIG_DIR")
    user = Path(config) if config else Path.home() / ".config" / "wandb"
    return user / "settings", Path(os.environ.get("WANDB_DIR") or ".") / "wandb" / "settings"


def _wanted(option: str) -> str:
    # An option of `otel-ml.yaml` wins over the variable.
    raw = option if option != "auto" else os.environ.get("WANDB_MODE", "").strip().lower() or "auto"
    if raw not in MODES:
        raise ConfigError(f"WANDB_MODE: expected one of {', '.join(MODES)}, got {raw!r}.")
    return MODES[raw]


def _why_not_online(api_key: str | None, base_url: str) -> str | None:
    if not (api_key or _has_credentials(base_url)):
        return _NO_KEY
    if not _answers(base_url):
        return f"{base_url} does not answer"
    return None


def _has_credentials(base_url: str) -> bool:
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    named = os.environ.get("NETRC")
    for path in [Path(named)] if named else [Path.home() / ".netrc", Path.home() / "_netrc"]:
        with contextlib.suppress(OSError, UnicodeDecodeError, netrc.NetrcParseError):
            if netrc.netrc(str(path)).authenticators(urlsplit(base_url).netloc):
                return True
    return False


def _answers(base_url: str) -> bool:
    """Probe the port: `wandb.init` would try for 90 s. Behind a proxy only the client itself can tell."""
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    if parts.scheme in urllib.request.getproxies() and not urllib.request.proxy_bypass(host):
        return True
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        socket.create_connection((host, port), timeout=_PROBE_TIMEOUT).close()
    except (OSError, ValueError):
        return False
    return True
