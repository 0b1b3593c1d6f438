from __future__ import annotations

import re
from pathlib import Path

import pytest

from otel_ml.exceptions import ConfigError
from otel_ml_service import env
from otel_ml_service.config import ScrapedSeries, ServiceConfig, default_exporters


def load(tmp_path: Path, text: str = "", environ: dict[str, str] | None = None, **arguments: object) -> ServiceConfig:
    file = tmp_path / "otel-ml.yaml"
    file.write_text(text)
    return ServiceConfig.load(file=file, environ=environ or {}, **arguments)  # type: ignore[arg-type]


def problems(tmp_path: Path, text: str = "", environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text, environ)
    return list(caught.value.problems)


def test_without_anything_the_defaults_are_in_effect() -> None:
    config = ServiceConfig.load(environ={})

    assert tuple(config.exporters) == default_exporters()
    assert (config.http, config.allowed_lateness_s, config.dir_max) == (("127.0.0.1", 4318), 10.0, 10 * 2**30)
    assert config.dir == Path("otel-ml-runs").absolute()


def test_an_argument_beats_the_file_which_beats_the_environment(tmp_path: Path) -> None:
    environ = {"OTEL_ML_LISTEN_HTTP": "127.0.0.1:1", "OTEL_ML_DIR_MAX": "1 KiB", "OTEL_ML_ALLOWED_LATENESS": "1"}
    text = "listen: {http: '127.0.0.1:2'}\ndir_max: 2 KiB\n"

    config = load(tmp_path, text, environ, http="127.0.0.1:3")

    assert (config.http[1], config.dir_max, config.allowed_lateness_s) == (3, 2048, 0.001)


def test_a_silent_run_ends_after_five_minutes_embedded_after_thirty_seconds_or_as_said(tmp_path: Path) -> None:
    embedded = {"OTEL_ML_EXPERIMENT_ID": "one"}

    assert load(tmp_path).end_silence_s == 300.0
    assert load(tmp_path, environ=embedded, rendezvous=tmp_path).end_silence_s == 30.0
    assert load(tmp_path, "end_silence: 1500").end_silence_s == 1.5
    assert load(tmp_path, environ={**embedded, "OTEL_ML_END_SILENCE": "2000"}, rendezvous=tmp_path).end_silence_s == 2.0
    assert "OTEL_ML_END_SILENCE" in problems(tmp_path, environ={"OTEL_ML_END_SILENCE": "2s"})[0]


def test_exporters_of_the_file_keep_their_options_where_the_command_line_names_them(tmp_path: Path) -> None:
    text = "exporters:\n  jsonl:\n  mlflow/remote: {every: 10}\n"

    from_file = load(tmp_path, text, {"OTEL_ML_EXPORTERS": "wandb"})
    from_arguments = load(tmp_path, text, exporters=["mlflow/remote", "console"])

    assert from_file.exporters == {"jsonl": {}, "mlflow/remote": {"every": 10}}
    assert from_arguments.exporters == {"mlflow/remote": {"every": 10}, "console": {}}
    assert load(tmp_path, "exporters: [jsonl, console]").exporters == {"jsonl": {}, "console": {}}


def test_variables_are_put_in_and_a_missing_one_is_said(tmp_path: Path) -> None:
    text = "token: ${env:SECRET}\nexporters: {wandb: {entity: 'team-${env:TEAM}'}}"

    config = load(tmp_path, text, {"SECRET": "s3", "TEAM": "rl"})

    assert (config.token, config.exporters["wandb"]["entity"]) == ("s3", "team-rl")
    assert "s3" not in repr(config)
    assert "token: the variable SECRET is not set." in problems(tmp_path, text, {"TEAM": "x"})[0]


@pytest.mark.parametrize("name", ["OPEN_MAX", "QUEUE_MAX", "DIR_MAX", "RETAINED_MAX", "CLOSED_MAX", "LATE_MAX"])
def test_a_size_below_zero_is_refused(tmp_path: Path, name: str) -> None:
    (found,) = problems(tmp_path, "", {f"OTEL_ML_{name}": "-1"})

    assert found.startswith(f"OTEL_ML_{name}: expected a size such as")


def test_everything_wrong_is_said_at_once(tmp_path: Path) -> None:
    text = "exportes: {}\nlisten: {htp: x, http: nowhere}\nallowed_lateness: soon\n"

    found = problems(tmp_path, text, {"OTEL_ML_DIR_MAX": "much"})

    assert len(found) == 5
    assert any("exportes: is not a setting. Did you mean 'exporters'?" in problem for problem in found)
    assert any("listen.htp: is not a setting. Did you mean 'http'?" in problem for problem in found)
    assert any("otel-ml.yaml: listen.http: expected host:port" in problem for problem in found)
    assert any("otel-ml.yaml: allowed_lateness: expected a whole number" in problem for problem in found)
    assert any(problem.startswith("OTEL_ML_DIR_MAX: expected a size") for problem in found)


def test_wrong_exporters_are_said_with_wrong_settings(tmp_path: Path) -> None:
    text = "exporters: {jsonl: {evry: 2}, tensorbord: {}, console: {}}\nallowed_lateness: soon\n"

    found = problems(tmp_path, text, {"OTEL_ML_DIR_MAX": "much"})

    assert len(found) == 4
    assert any("otel-ml.yaml: allowed_lateness: expected a whole number" in problem for problem in found)
    assert any(problem.startswith("OTEL_ML_DIR_MAX: expected a size") for problem in found)
    assert any("exporters.jsonl: evry is not an option. Did you mean 'every'?" in problem for problem in found)
    assert any("'tensorbord'" in problem and "tensorboard" in problem for problem in found)


@pytest.mark.parametrize("text", ["{", "- a", "\x00"])
def test_a_file_that_is_no_mapping_is_named(tmp_path: Path, text: str) -> None:
    assert "otel-ml.yaml" in problems(tmp_path, text)[0]


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Cannot read .*missing\.yaml"):
        ServiceConfig.load(file=tmp_path / "missing.yaml", environ={})


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "10.0.0.7", "gpu-node-1"])
def test_an_address_others_can_reach_demands_a_token(host: str) -> None:
    environ = {"OTEL_ML_LISTEN_HTTP": f"{host}:4318"}

    with pytest.raises(ConfigError, match=r"OTEL_ML_LISTEN_HTTP=.*:4318 is not a loopback address.*OTEL_ML_TOKEN"):
        ServiceConfig.load(environ=environ)
    assert ServiceConfig.load(environ={**environ, "OTEL_ML_TOKEN": "x"}).http[1] == 4318


def test_embedded_the_run_comes_from_the_environment_and_the_port_is_free(tmp_path: Path) -> None:
    environ = {"OTEL_ML_EXPERIMENT_ID": "01JX", "OTEL_ML_EXPERIMENT_NAME": "digits"}

    config = ServiceConfig.load(rendezvous=tmp_path, environ=environ)

    assert config.embedded is not None
    assert (config.embedded.experiment, config.embedded.experiment_name, config.embedded.run_name) == (
        "01JX",
        "digits",
        "01JX",
    )
    assert (config.http, config.grpc) == (("127.0.0.1", 0), None)


def test_embedded_may_listen_to_other_hosts_for_it_makes_a_token_of_its_own(tmp_path: Path) -> None:
    environ = {"OTEL_ML_EXPERIMENT_ID": "run", "OTEL_ML_LISTEN_HTTP": "10.77.0.10:0"}

    assert ServiceConfig.load(rendezvous=tmp_path, environ=environ).http == ("10.77.0.10", 0)


def test_tokens_come_from_the_file_as_a_list_and_from_a_file_of_their_own(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("newest\n\nnewer\n")

    config = load(tmp_path, f"tokens: [new, '${{env:OLD}}']\ntoken_file: {tokens}\n", {"OLD": "o1d"}, http="0.0.0.0:0")

    assert (config.token, config.tokens, config.token_file) == ("", ("new", "o1d"), tokens)
    assert "o1d" not in repr(config)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("token: [s3cret, old]", "token: expected one text. For several use tokens: [NEW, OLD]."),
        ("tokens: s3cret", "tokens: expected a list of texts."),
        ("tokens: [{s3cret: b}]", "tokens: expected a list of texts."),
        ("tokens: ['s3cret-ö']", "tokens: expected printable ASCII characters."),
        ("token_file: /no/file", "token_file: '/no/file' cannot be used"),
        ("token_file: /dev/null", "token_file: '/dev/null' cannot be used: it holds no token."),
    ],
)
def test_tokens_that_are_none_are_said_without_showing_them(tmp_path: Path, text: str, said: str) -> None:
    (problem,) = problems(tmp_path, text)

    assert said in problem
    assert "s3cret" not in problem


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("token: 0123", "token"),
        ("token: 1_000", "token"),
        ("token: 0x1F", "token"),
        ("token: 1.50", "token"),
        ("token: yes", "token"),
        ("token: 2026-12-01T10:00:00Z", "token"),
        ("tokens: [new, 0123]", "tokens"),
        ("tokens: [yes]", "tokens"),
    ],
)
def test_a_token_that_yaml_reads_as_another_text_than_stands_there_is_said_without_showing_it(
    tmp_path: Path, text: str, key: str
) -> None:
    (problem,) = problems(tmp_path, text)

    assert problem.startswith(f"{tmp_path / 'otel-ml.yaml'}: {key}: expected a token in quotes")
    assert not re.search(r"0123|\b83\b|1_?000|0x1F|31|1\.5|2026", problem.replace(str(tmp_path), ""))


def test_a_token_of_digits_that_yaml_reads_as_they_stand_there_needs_no_quotes(tmp_path: Path) -> None:
    config = load(tmp_path, "token: 4321\ntokens: ['0123', 77, &old 5678]\n", {})

    assert (config.token, config.tokens) == ("4321", ("0123", "77", "5678"))


@pytest.mark.parametrize(
    "text", ["- token: s3cret", "s3cret", "exporters: {wandb: s3cret}", "listen: s3cret", "listen: {tls: [s3cret]}"]
)
def test_what_stands_where_keys_and_values_are_expected_is_not_shown(tmp_path: Path, text: str) -> None:
    (problem,) = problems(tmp_path, text)

    assert re.search(r"expected keys and values, got a (text|list)\.$", problem)
    assert "s3cret" not in problem


def test_embedded_no_variable_keeps_the_service_of_a_job_from_starting(tmp_path: Path) -> None:
    odd = {
        "OTEL_ML_ALLOWED_LATENESS": "5s",
        "OTEL_ML_DIR_MAX": "much",
        "OTEL_ML_LISTEN_HTTP": "4318",
        "OTEL_ML_TOKEN": "tök",
        "OTEL_ML_JOURNAL_DIR": "~nobody-of-this-name/x",
    }

    config = ServiceConfig.load(rendezvous=tmp_path, environ={"OTEL_ML_EXPERIMENT_ID": "one", **odd})

    # The token is that of another service: the job itself says what is wrong with it.
    assert {problem.split(":")[0] for problem in config.problems} == set(odd) - {"OTEL_ML_TOKEN"}
    assert all(problem.endswith("Its default is used.") for problem in config.problems)
    assert (config.allowed_lateness_s, config.http, config.token) == (10.0, ("127.0.0.1", 0), "")
    assert config.journal_dir is None
    with pytest.raises(ConfigError) as caught:
        ServiceConfig.load(environ=odd)
    assert len(caught.value.problems) == len(odd)


def test_embedded_without_an_experiment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="OTEL_ML_EXPERIMENT_ID"):
        ServiceConfig.load(rendezvous=tmp_path, environ={})


def test_every_variable_says_what_it_means() -> None:
    assert all(variable.doc and variable.name.startswith("OTEL_ML_") for variable in env.VARIABLES)


def test_the_budget_of_scraped_series_comes_from_the_file(tmp_path: Path) -> None:
    config = load(tmp_path, "scraped: {allow: ['vllm/*'], max_series: 7}")

    assert config.scraped == ScrapedSeries(allow=("vllm/*",), max_series=7)


def test_a_setting_of_the_file_without_a_value_says_nothing(tmp_path: Path) -> None:
    assert load(tmp_path, "scraped: {allow: , max_series: 7}").scraped == ScrapedSeries(max_series=7)


def test_names_of_other_programs_come_from_the_file(tmp_path: Path) -> None:
    assert load(tmp_path, "aliases: {rank: dl.rank, axis: }").aliases == {"rank": "dl.rank"}


@pytest.mark.parametrize(
    "text", ["dir: 2026-13-45", "a: 'open", "\x00", "[" * 3_000, "dir: &a [*a]", "exporters: &a {b: *a}"]
)
def test_a_file_that_cannot_be_read_is_a_problem_and_no_traceback(tmp_path: Path, text: str) -> None:
    [problem] = problems(tmp_path, text)

    assert "is not YAML" in problem


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("aliases: {rnk: dl.rank}", "aliases.rnk: is not a setting. Known: experiment, "),
        ("aliases: {rank: 5}", "aliases.rank: expected the name of an attribute, such as 'dl.rank', got 5."),
        ("aliases: dl.rank", "aliases: expected keys and values, got a text."),
        ("scraped: {alow: ['vllm/*']}", "Did you mean 'allow'?"),
        ("scraped: {deny: 'vllm/*'}", "scraped.deny: expected a list of globs, such as ['vllm/*'], got 'vllm/*'."),
        ("scraped: {deny: 5}", "scraped.deny: expected a list of globs, such as ['vllm/*'], got 5."),
        ("scraped: {allow: {}}", "scraped.allow: expected a list of globs, such as ['vllm/*'], got {}."),
        ("scraped: {max_series: none}", "scraped.max_series: expected a whole number of at least 1, got 'none'."),
        ("scraped: {max_series: yes}", "scraped.max_series: expected a whole number of at least 1, got True."),
    ],
)
def test_a_wrong_budget_is_named(tmp_path: Path, text: str, said: str) -> None:
    [problem] = problems(tmp_path, text)

    assert said in problem
