from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from otel_ml.exceptions import ConfigError
from otel_ml_exporters.backends.wandb.connection import Decision, decide, foreseen
from otel_ml_exporters.errors import RetryableExportError

NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def nobody_is_logged_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))


@pytest.fixture
def somewhere() -> Iterator[str]:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_with_a_key_and_a_server_the_run_is_online_and_may_fall_back(somewhere: str) -> None:
    assert decide("auto", None, api_key="k", base_url=somewhere) == Decision("online", may_fall_back=True)


def test_a_run_that_is_online_never_falls_back(somewhere: str) -> None:
    assert decide("auto", "online", api_key="k", base_url=somewhere) == Decision("online")
    with pytest.raises(RetryableExportError, match="does not answer"):
        decide("auto", "online", api_key="k", base_url=NOWHERE)


def test_a_key_in_the_netrc_file_counts(somewhere: str, tmp_path: Path) -> None:
    netloc = somewhere.removeprefix("http://")
    (tmp_path / "netrc").write_text(f"machine {netloc}\n  login user\n  password secret\n")

    assert decide("auto", None, api_key=None, base_url=somewhere).mode == "online"


@pytest.mark.parametrize(
    ("api_key", "reason"), [(None, "no API key"), ("k", "does not answer")], ids=["no key", "no server"]
)
def test_without_key_or_server_a_new_run_is_offline_and_says_why(api_key: str | None, reason: str) -> None:
    decision = decide("auto", None, api_key=api_key, base_url=NOWHERE)

    assert decision.mode == "offline"
    assert decision.notice is not None
    assert reason in decision.notice


def test_that_there_is_no_key_is_known_before_w_and_b_is_imported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    said = foreseen("auto", None, "runs/wandb/offline-run-*-one")

    assert said == decide("auto", None, api_key=None, base_url=NOWHERE, logs="runs/wandb/offline-run-*-one").notice
    assert said is not None
    assert "wandb login; wandb sync runs/wandb/offline-run-*-one" in said


@pytest.mark.parametrize("has", ["key", "settings", "mode", "a former start"])
def test_nothing_is_foreseen_where_it_may_be_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, has: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    if has == "key":
        monkeypatch.setenv("WANDB_API_KEY", "k")
    if has == "settings":
        (tmp_path / ".config" / "wandb").mkdir(parents=True)
        (tmp_path / ".config" / "wandb" / "settings").touch()

    option, before = "offline" if has == "mode" else "auto", "online" if has == "a former start" else None

    assert foreseen(option, before, "logs") is None


def test_a_run_that_began_offline_stays_offline(somewhere: str) -> None:
    assert decide("auto", "offline", api_key="k", base_url=somewhere).mode == "offline"


@pytest.mark.parametrize(
    ("variable", "mode"),
    [("offline", "offline"), ("dryrun", "offline"), ("ONLINE", "online"), ("disabled", "disabled")],
)
def test_the_variable_of_wandb_decides_where_the_option_does_not(
    monkeypatch: pytest.MonkeyPatch, variable: str, mode: str
) -> None:
    monkeypatch.setenv("WANDB_MODE", variable)

    assert decide("auto", None, api_key=None, base_url=NOWHERE) == Decision(mode)
    assert decide("online", None, api_key=None, base_url=NOWHERE) == Decision("online")


def test_an_unknown_mode_in_the_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "ofline")

    with pytest.raises(ConfigError, match=r"WANDB_MODE: expected one of .*, got 'ofline'"):
        decide("auto", None, api_key=None, base_url=NOWHERE)


def test_a_run_on_the_server_cannot_go_on_offline() -> None:
    with pytest.raises(ConfigError, match="cannot go on offline"):
        decide("offline", "online", api_key="k", base_url=NOWHERE)


def test_a_netrc_file_that_is_not_text_has_no_key(tmp_path: Path) -> None:
    (tmp_path / "netrc").write_bytes("machine 127.0.0.1:9 login user password grüße".encode("latin-1"))

    assert decide("auto", None, api_key=None, base_url=NOWHERE).mode == "offline"
