"""A secret that a job was given is in nothing that it leaves behind, prints or shows to other processes."""

from __future__ import annotations

import gzip
import os
import random
import string
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from otel_ml.config import Config
from otel_ml.redaction import redacted, redacted_arguments, redacted_values
from otel_ml_service.config import ServiceConfig
from tests.e2e.jobs import the_run_in
from tests.integration.worker_process import environment
from tests.waiting import eventually

SECRETS = {
    "WANDB_API_KEY": "0123456789abcdef0123456789abcdef01234567",
    "HF_TOKEN": "hf_AbCdEfGhIjKlMnOpQrStUvWxYz",
    "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "GITHUB_TOKEN": "ghp_0123456789abcdefghijABCDEFGHIJ",
    "OPENAI_API_KEY": "sk-proj-0123456789abcdefABCDEF",
    "DB_PASSWORD": "correct horse",
    "OTEL_ML_TOKEN": "the-services-own-token",
}
HEADER = "s3cr3t-of-the-header"
URL_PASSWORD = "pa55word-of-the-url"
EVERY = [*SECRETS.values(), HEADER, URL_PASSWORD]

JOB = """
import os, sys
import otel_ml
secrets = {name.lower(): os.environ[name] for name in sys.argv[1].split(",")}
params = {"lr": 0.1, "eos_token": "</s>", "max_tokens": 512, "hub": {"deep": [secrets, {"url": sys.argv[2]}]}}
with otel_ml.init("exp", id="secrets", exporters="jsonl,tensorboard,wandb", params=params):
    otel_ml.log_params({"more": secrets["wandb_api_key"] and {"password": secrets["db_password"]}})
    otel_ml.log({"loss": 1.0}, step=0)
    print("ready", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository whose remote has a password, and whose change that is not committed has every secret there is."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(JOB)
    (folder / "settings.py").write_text("A = 1\n")
    (folder / ".env").write_text("B=1\n")
    environ = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    who = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
    remote = f"https://user:{URL_PASSWORD}@example.com/repo.git"
    for arguments in (
        ["init", "--quiet"], ["add", "-f", "."], [*who, "commit", "--quiet", "-m", "first"],
        ["remote", "add", "origin", remote],
    ):  # fmt: skip
        subprocess.run(["git", *arguments], cwd=folder, env=environ, check=True, capture_output=True)
    python = "".join(f"{name} = {value!r}\n" for name, value in SECRETS.items())
    python += "".join(f"{name.lower()}: str = {value!r}\n" for name, value in SECRETS.items())
    python += f"URL = 'postgresql://me:{URL_PASSWORD}@db/x'\nHEADERS = {{'Authorization': 'Bearer {HEADER}'}}\n"
    (folder / "settings.py").write_text(f"A = 2\n{python}")
    env = "".join(f'export {name}="{value}"\n' for name, value in SECRETS.items())
    (folder / ".env").write_text(f"B=2\n{env}")
    return folder


def test_no_secret_is_in_what_a_job_leaves_prints_or_shows_in_its_command_lines(
    repository: Path, tmp_path: Path
) -> None:
    given = {
        **SECRETS,
        "OTEL_ML_CAPTURE": "auto",
        "WANDB_MODE": "offline",
        "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{HEADER}",
        "OTEL_ML_MODE": "embedded",
        "OTEL_LOG_LEVEL": "debug",
        "HTTPS_PROXY": f"http://me:{URL_PASSWORD}@127.0.0.1:9",
    }
    environ = environment(tmp_path, given)
    url = f"https://me:{URL_PASSWORD}@example.com/model"
    options = ["--wandb-api-key", SECRETS["WANDB_API_KEY"], f"--hf_token={SECRETS['HF_TOKEN']}"]
    with subprocess.Popen(
        [sys.executable, "train.py", ",".join(SECRETS), url, *options],
        cwd=repository, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as job:  # fmt: skip
        assert job.stdout is not None
        assert job.stdout.readline() == "ready\n"
        runs = tmp_path / "runs"
        eventually(lambda: list(runs.rglob("packages.txt")), timeout=60)
        of_service = [command for command in commands() if b"otel_ml_service" in command and b"serve" in command]
        output, errors = job.communicate("go\n", timeout=90)
    assert job.returncode == 0, errors
    run = the_run_in(runs)  # once the service has left, which writes, renames and removes files until then

    for secret in EVERY:
        assert secret.encode() not in b"".join(of_service)
        assert secret not in output + errors
        assert [path for path in runs.rglob("*") if path.is_file() and secret.encode() in everything_in(path)] == []
    assert of_service
    [diff] = run.rglob("git-diff.patch")
    assert "WANDB_API_KEY = '***'" in diff.read_text()
    assert '"eos_token":"</s>"' in (run / "metrics.jsonl").read_text()


def commands() -> list[bytes]:
    """Return the command line of every process of this machine."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes())
        except OSError:
            continue
    return found


def everything_in(path: Path) -> bytes:
    content = path.read_bytes()
    return content + (gzip.decompress(content) if content[:2] == b"\x1f\x8b" else b"") + _inflated(content)


def _inflated(content: bytes) -> bytes:
    try:
        return zlib.decompress(content)
    except zlib.error:
        return b""


def test_env_and_doctor_show_no_secret_wherever_it_was_put(tmp_path: Path) -> None:
    given = {
        **SECRETS,
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://me:{URL_PASSWORD}@127.0.0.1:9",
        "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"ftp://me:{URL_PASSWORD}@127.0.0.1:9",
        "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{HEADER},x-api-key={HEADER}",
        "OTEL_RESOURCE_ATTRIBUTES": f"team=rl,api_key={HEADER}",
        "OTEL_ML_FLUSH_INTERVAL": f"api_key={HEADER}",
    }
    environ = environment(tmp_path, given)

    done = [
        subprocess.run(
            [sys.executable, "-m", "otel_ml_service", command], env=environ, capture_output=True, text=True,
            timeout=90, check=False,
        )
        for command in ("env", "doctor")
    ]  # fmt: skip

    shown = "".join(one.stdout + one.stderr for one in done)
    assert "OTEL_EXPORTER_OTLP_HEADERS" in shown
    assert "team=rl,api_key=***" in shown
    assert "http://***@127.0.0.1:9" in shown
    assert [secret for secret in EVERY if secret in shown] == []


def test_a_job_that_cannot_reach_its_endpoint_says_so_without_the_password(tmp_path: Path) -> None:
    endpoint = f"http://me:{URL_PASSWORD}@127.0.0.1:9"
    environ = environment(tmp_path, {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint})
    program = "import otel_ml\nwith otel_ml.init('exp'):\n    otel_ml.log({'x': 1}, step=0)\n    otel_ml.flush(1.0)\n"

    done = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, timeout=90, check=False
    )

    assert "127.0.0.1:9" in done.stderr
    assert URL_PASSWORD not in done.stderr


@pytest.mark.parametrize(
    "content",
    [
        "token: 'hush-hush-hush\nlisten: {http: '0.0.0.0:1'}",
        "exporters: {wandb: 'api_key=hush-hush-hush'}",
        "exporters: {wandb: {api_key: hush-hush-hush, mode: [}}",
    ],
)
def test_a_wrong_otel_ml_yaml_is_said_without_its_secrets(tmp_path: Path, content: str) -> None:
    file = tmp_path / "otel-ml.yaml"
    file.write_text(content)

    done = subprocess.run(
        [sys.executable, "-m", "otel_ml_service", "serve", "--config", str(file)],
        env=environment(tmp_path, {}), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert done.returncode == 1
    assert "otel-ml.yaml" in done.stderr or "http" in done.stderr
    assert "hush-hush-hush" not in done.stdout + done.stderr


def test_settings_objects_show_no_token_in_a_traceback() -> None:
    environ = {"OTEL_ML_TOKEN": "hush-hush", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:hush-hush@b"}

    assert "hush-hush" not in repr(ServiceConfig.load(environ=environ))
    assert "hush-hush" not in repr(Config.from_env(environ))


@pytest.mark.parametrize(
    "text",
    [
        "password: two words here",
        'PASSWORD="two words here"',
        "https://token-only@github.com/x.git",
        "Authorization: Bearer abcdefgh",
        "authorization=Basic%20dXNlcjpwYXNz",
        "machine api.wandb.ai login user password 0123456789abcdef0123456789abcdef01234567",
        "-----BEGIN OPENSSH PRIVATE KEY-----\n+b3BlbnNzaC1rZXk\n+-----END OPENSSH PRIVATE KEY-----",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
        "?api_key=0123456789&x=1",
        '"client_secret": "0123456789"',
        "myApiKey=0123456789",
        "ValueError: api_key=0123456789",
        "RuntimeError: it did not log in with password=0123456789",
        "epoch: 3, step: 7 api_key = 0123456789",
        "password: 0123456789 lr=0.1",
        "password: str | None = '0123456789'",
        "api_key: Optional[str]=0123456789",
    ],
    ids=ascii,
)
def test_forms_of_secrets_that_are_hidden(text: str) -> None:
    shown = redacted(text)

    assert "***" in shown
    for part in ("words", "token-only", "abcdefgh", "dXNl", "0123456789", "b3Bl", "dozj"):
        assert part not in shown


@pytest.mark.parametrize(
    "text",
    [
        "wandb=" * 20_000,  # at once: what follows is looked at once, not once for each name
        "max_tokens=512 eos_token='</s>' tokenizer=gpt2-medium pad_token=[PAD] text_key=prompt_text",
        "commit 0123456789abcdef0123456789abcdef01234567",
        "monkey=banana-banana passwords_tried=3 secretary=alice-in-wonderland",
        "http://127.0.0.1:4318/v1/metrics?x=1",
        "num_key_value_heads: 8, key = value",
        "python hf_hyperparameter_search.py --dir runs/hf_llama3_7b_sft_v2 --name sk-learn-baseline",
        "--data hf_IMDB_Reviews_20261130 hf_tokenizer npm_packages_list pypi-mirror-latency wandb_v1_baseline",
        "--model hf_transformers",
    ],
    ids=lambda text: text[:20],
)
def test_what_is_no_secret_is_left_alone(text: str) -> None:
    assert redacted(text) == text
    assert redacted_arguments(text.split()) == text.split()


@pytest.mark.parametrize("prefix", ["hf_", "ghp_", "glpat-", "sk-", "npm_", "pypi-"])
def test_a_token_of_any_letters_is_hidden(prefix: str) -> None:
    chosen = random.Random(prefix)
    for alphabet, length in (
        (string.ascii_letters, 34),
        (string.ascii_letters + string.digits, 36),
        ("0123456789abcdef", 32),
    ):
        token = prefix + "".join(chosen.choices(alphabet, k=length))
        assert redacted(f"login with {token} now") == "login with *** now"


@pytest.mark.parametrize(
    "token",
    [
        "hf_my_secret_key",
        "sk-test-12345678",
        "sk-proj-private-1",
        "npm_abcdefgh",
        "hf_abcdefghijklmnop",
        "hf_my_token_1",
    ],
)
def test_a_token_that_reads_like_a_name_is_hidden_where_it_says_so_or_has_a_number_of_no_date(token: str) -> None:
    assert redacted(f"login with {token} now") == "login with *** now"


def test_values_are_hidden_wherever_they_are_nested() -> None:
    params = {"a": [{"api_key": "k" * 20}], "b": {"c": ("hf_" + "x" * 20, 1)}, "token_budget": 7, "token": 7}

    hidden = redacted_values(params)

    assert hidden == {"a": [{"api_key": "***"}], "b": {"c": ["***", 1]}, "token_budget": 7, "token": 7}


WANDB_KEY = "abcdef0123456789abcdef0123456789abcdef01"


@pytest.mark.parametrize(
    "name", ["logger.wandb.key", "wandb-key", "swanlab_key", "hf.key", "openai_key", "use_wandb", "api_key"]
)
def test_the_key_of_a_service_is_hidden_under_each_name_that_frameworks_give_it(name: str) -> None:
    assert redacted_arguments(["train.py", f"--{name}", WANDB_KEY, "--lr", "1"]) == [
        "train.py",
        f"--{name}",
        "***",
        "--lr",
        "1",
    ]
    assert redacted(f"train.py --{name}={WANDB_KEY} --lr=1") == f"train.py --{name}=*** --lr=1"
    assert redacted_values({name: WANDB_KEY}) == {name: "***"}


def test_the_key_of_a_service_is_hidden_where_it_is_nested() -> None:
    nested = {"logger": {"wandb": {"key": WANDB_KEY, "project": "p"}}, "sort": {"key": "length"}}

    assert redacted_values(nested) == {
        "logger": {"wandb": {"key": "***", "project": "p"}},
        "sort": {"key": "length"},
    }


@pytest.mark.parametrize("text", ["wandb.group=night", "sort.key=length", "use_wandb=true", f"commit={WANDB_KEY}"])
def test_what_stands_beside_the_key_of_a_service_is_left_alone(text: str) -> None:
    name, _, value = text.partition("=")

    assert redacted(text) == text
    assert redacted_values({name: value}) == {name: value}
