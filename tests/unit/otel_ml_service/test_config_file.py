from __future__ import annotations

from pathlib import Path

import pytest

from otel_ml_service.config_file import FileSettings, read_config_file, resolved_options


def read(tmp_path: Path, text: str, environ: dict[str, str] | None = None) -> tuple[FileSettings, list[str]]:
    """Return what a file says, and what is wrong with it, without its path."""
    file = tmp_path / "otel-ml.yaml"
    file.write_text(text)
    problems: list[str] = []
    said = read_config_file(file, environ or {}, problems)
    return said, [problem.removeprefix(f"{file}: ").replace(str(file), "FILE") for problem in problems]


def test_every_place_of_a_file_is_read(tmp_path: Path) -> None:
    text = """
        exporters: {jsonl: {every: 2}, "mlflow/remote": {uri: "${env:URI}", tags: ["${env:URI}", 3]}}
        dir: runs
        dir_max: 2 GiB
        top_ranks: 3
        findings: off
        token: secret
        tokens: [new, 17]
        listen: {http: "127.0.0.1:1", grpc: "127.0.0.1:2", tls: {certificate: c.pem, key: k.pem, client_ca: }}
        scraped: {deny: ["go_*"]}
        aliases: {rank: dl.rank}
    """

    said, problems = read(tmp_path, text, {"URI": "http://a"})

    assert problems == []
    assert said == FileSettings(
        exporters={"jsonl": {"every": 2}, "mlflow/remote": {"uri": "http://a", "tags": ["http://a", 3]}},
        written={"jsonl": {"every": 2}, "mlflow/remote": {"uri": "${env:URI}", "tags": ["${env:URI}", 3]}},
        values={
            "dir": "runs", "dir_max": "2 GiB", "top_ranks": "3", "findings": "False", "token": "secret",
            "http": "127.0.0.1:1", "grpc": "127.0.0.1:2",
        },
        tls={"certificate": "c.pem", "key": "k.pem"},
        scraped={"deny": ["go_*"]},
        aliases={"rank": "dl.rank"},
        tokens=["new", "17"],
        file=str(tmp_path / "otel-ml.yaml"),
    )  # fmt: skip
    assert said.place_of("http") == f"{tmp_path}/otel-ml.yaml: listen.http"
    assert said.place_of("dir_max") == f"{tmp_path}/otel-ml.yaml: dir_max"


@pytest.mark.parametrize(
    ("text", "exporters"),
    [
        ("dir: runs", None),
        ("exporters:", {}),
        ("exporters: [jsonl, 5]", {"jsonl": {}, "5": {}}),
        ("exporters: {jsonl: }", {"jsonl": {}}),
    ],
)
def test_no_exporters_are_something_else_than_none_said(tmp_path: Path, text: str, exporters: object) -> None:
    said, problems = read(tmp_path, text)

    assert (said.exporters, problems) == (exporters, [])
    assert said.written == {}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 'open", "'FILE' is not YAML in line 1, column 9: found unexpected end of stream."),
        ("dir: runs\n- a", "'FILE' is not YAML in line 2, column 1: expected <block end>, but found '-'."),
        ("dir: 2026-13-45", "'FILE' is not YAML: it cannot be read."),
        ("- a", "expected keys and values, got a list."),
        ("listen: 4318", "listen: expected keys and values, got one value."),
        ("exporters: jsonl", "exporters: expected keys and values, got a text."),
        ("exporters: {jsonl: 5}", "exporters.jsonl: expected keys and values, got one value."),
        (
            "listen: {htp: a}",
            "listen.htp: is not a setting. Did you mean 'http'? Known: http, grpc, tls.",
        ),
        (
            "listen: {tls: {zzzz: a}}",
            "listen.tls.zzzz: is not a setting. Known: certificate, key, client_ca.",
        ),
        ("token: {a: b}", "token: expected one text. For several use tokens: [NEW, OLD]."),
        ("tokens: [[a]]", "tokens: expected a list of texts."),
        ("tokens: [true]", "tokens: expected a token in quotes: without them YAML reads another text than that."),
        ("dir: '${env:HERE}/runs'", "dir: the variable HERE is not set."),
        ("exporters: {wandb: {tags: {a: ['${env:HERE}']}}}", "exporters.wandb.tags.a: the variable HERE is not set."),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, text: str, problem: str) -> None:
    assert read(tmp_path, text)[1] == [problem]


def test_unknown_settings_are_said_in_their_order(tmp_path: Path) -> None:
    said, problems = read(tmp_path, "{zz: 1, aa: 2, dir: runs}")

    assert [problem.partition(":")[0] for problem in problems] == ["aa", "zz"]
    assert said.values == {"dir": "runs"}


def test_a_file_that_is_not_there_says_nothing_and_why(tmp_path: Path) -> None:
    problems: list[str] = []

    said = read_config_file(tmp_path / "none.yaml", {}, problems)

    assert said == FileSettings()
    assert problems == [f"Cannot read '{tmp_path}/none.yaml': No such file or directory."]


def test_options_that_were_kept_are_resolved_with_the_variables_of_now() -> None:
    problems: list[str] = []

    options = resolved_options({"wandb": {"entity": "${env:TEAM}-${env:NONE}"}}, {"TEAM": "rl"}, problems)

    assert options == {"wandb": {"entity": "rl-"}}
    assert problems == ["exporters.wandb.entity: the variable NONE is not set."]
