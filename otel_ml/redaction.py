"""Secrets in what people read or keep: settings, command lines, diffs, parameters, messages, logs.

By the name that stands before a value, and by what a token looks like. A rule for names alone would hide half of a
language model's settings: `max_tokens`, `eos_token`, `tokenizer` and `text_key` are none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["HIDDEN", "is_secret_name", "redacted", "redacted_arguments", "redacted_values"]

HIDDEN = "***"

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_PASSWORDS = frozenset({"password", "passwd", "pwd", "passphrase"})
_SECRETS = frozenset({"secret", "secrets", "credential", "credentials", "apikey", "authorization", "cookie"})
_KEYS = frozenset({
    "api", "access", "private", "signing", "encryption", "ssh", "auth", "account", "service", "client", "master",
    "session", "storage", "subscription", "license",
    "wandb", "swanlab", "comet", "clearml", "neptune", "trackio", "mlflow", "hf", "huggingface", "openai", "anthropic",
})  # fmt: skip
"""What makes a key a secret one; `text_key` and `reward_key` name a column."""
_VOCABULARY = frozenset({
    "eos", "bos", "pad", "unk", "mask", "cls", "sep", "special", "image", "video", "audio", "stop", "start", "end",
    "begin", "tool", "boi", "eoi", "eot", "eom", "next", "last", "first", "per", "think", "fim", "prefix", "suffix",
})  # fmt: skip
"""What makes a token one of a model's vocabulary."""

# What is not a secret under any name: a short number, a truth value, nothing, marks alone.
_PLAIN = re.compile(r"(?i)[-+.\d]{1,7}(?:e[-+]?\d+)?|true|false|none|null|\W*")
_WANDB_KEY = re.compile(r"[0-9a-f]{40}")
_TOKEN_SHAPE = re.compile(r"[\w\-.~+/=:%]{8,}")

# Every repetition is bounded: a diff may have a line of a megabyte.
_NAMED = re.compile(
    r"(?<![\w\-])-{0,2}((?:[A-Za-z][\w\-]{0,80}\.)?[A-Za-z][\w\-]{0,80})['\"]?"  # the name, also that of an option
    r"(?:\s{0,9}:\s{0,9}[\w.\[\]]{1,60}(?:\s?\|\s?[\w.\[\]]{1,60}){0,4}(?=\s{0,9}=))?"  # its type
    r"\s{0,9}(?::=|=>|=|:)\s{0,9}"
)
_QUOTED = r"(['\"])((?:\\.|(?!\1)[^\n])*)\1"
_VALUE = re.compile(_QUOTED + r"|['\"]?([^\s'\"&,;]+)")
_REST = re.compile(_QUOTED + r"|['\"]?([^\n'\",;}]+)")
"""After `=` a word, as in a command; after `:` the rest of the line, as in YAML and headers."""

_NAME_WORD = r"[A-Z]{0,5}[a-z]{0,14}(?:(?:\d{1,4}|20\d{6})[a-z]?)?"
_SAYS_SO = r"[\w\-]*(?:secret|passw|private|api_?key|token(?!iz|s)|abcd|1234|xxxx)"
_NO_NAME = rf"(?!(?=[A-Za-z])(?!{_SAYS_SO}){_NAME_WORD}(?:[_\-]{_NAME_WORD}){{0,12}}(?![A-Za-z0-9_\-]))"
"""Not words, as in `hf_hyperparameter_search.py` and `sk-learn-baseline`; those of a token are longer, or mixed, or
say that they are secret, as the made-up ones of tests and manuals do.

A word's parts share no character, so that there is one way to read it: a long line takes no longer for it.
"""

_SHAPES = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|(?<![A-Za-z0-9])(?:"
    rf"(?:(?:hf_|sk-|npm_|pypi-|wandb_v1_){_NO_NAME}|gh[pousr]_|github_pat_|glpat-|xox[abeprs]-)[A-Za-z0-9_\-]{{8,}}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{12,}|AIza[A-Za-z0-9_\-]{30,}"
    r"|eyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]+(?:\.[A-Za-z0-9_\-]*)?)"
    # What stands before a secret ends with one of four characters: only behind those is looked for which it is.
    r"|(?<=[/ 0=])(?:"
    r"(?<=://)[^/\s:@'\"]*:[^/\s@'\"]+(?=@)|(?<=http://)[^/\s:@'\"]+(?=@)|(?<=https://)[^/\s:@'\"]+(?=@)"
    r"|(?i:(?<=bearer )|(?<=bearer%20)|(?<=basic )|(?<=basic%20))[A-Za-z0-9._~+/=\-]{6,}"
    r"|(?i:(?<=password )|(?<=wandb )|(?<=wandb=))[0-9a-f]{40}\b)",
    re.DOTALL,
)
"""What looks like what it is: private keys; tokens of Hugging Face, GitHub, GitLab, OpenAI and others, Slack, npm,
PyPI, W&B, AWS, Google; JSON web tokens; who a URL or a header says one is; a line of `.netrc`."""


def is_secret_name(name: str) -> bool:
    """Whether what has this name is a secret if it is a text.

    Examples:
        >>> all(map(is_secret_name, ("WANDB_API_KEY", "hfToken", "db.password", "aws_secret_access_key")))
        True
        >>> any(map(is_secret_name, ("max_tokens", "eos_token", "tokenizer", "text_key", "monkey")))
        False
    """
    # `hfToken`, `HF_TOKEN` and `hf-token` are the same two words.
    words = [word.lower() for word in _WORD.findall(name)]
    if not words:
        return False
    if not (_PASSWORDS | _SECRETS).isdisjoint(words):
        return True
    # The word before says what a token or a key is of: `eos_token` is a word of a model, `hf_token` a secret.
    before = set(words[:-1])
    if words[-1] == "token":
        return before.isdisjoint(_VOCABULARY)
    return words[-1] == "key" and (not before.isdisjoint(_KEYS) or (name.isupper() and "_" in name))


def redacted(text: str) -> str:
    """Return `text` with what looks like a secret replaced.

    Examples:
        >>> redacted("WANDB_API_KEY=abcdef123456 python train.py --lr 0.1 --max_tokens=512")
        'WANDB_API_KEY=*** python train.py --lr 0.1 --max_tokens=512'
        >>> redacted("https://user:pass@host/repo.git")
        'https://***@host/repo.git'
    """
    parts = []
    done = at = 0
    while (named := _NAMED.search(text, at)) is not None:
        # Not after all of the match: what looks like a type there may be a name itself, `ValueError: api_key=…`.
        at = named.end(1)
        name = _last(named[1])
        if not is_secret_name(name):
            continue
        value = (_VALUE if "=" in named[0] else _REST).match(text, named.end())
        if value is not None and _is_secret(name, value[3] if value[2] is None else value[2]):
            quote = value[1] or ""
            parts += [text[done : named.end()], quote, HIDDEN, quote]
            done = at = value.end()
    return _SHAPES.sub(HIDDEN, "".join([*parts, text[done:]]))


def redacted_arguments(arguments: Iterable[str]) -> list[str]:
    """Return a command line without secrets, also where they are words of their own.

    Examples:
        >>> redacted_arguments(["train.py", "--wandb-token", "s3cret-s3cret", "--max-tokens", "512"])
        ['train.py', '--wandb-token', '***', '--max-tokens', '512']
    """
    shown: list[str] = []
    option = ""
    for argument in arguments:
        is_value = bool(option) and not argument.startswith("-")
        hidden = (
            is_value and _PLAIN.fullmatch(argument) is None and (is_secret_name(option) or _is_secret(option, argument))
        )
        shown.append(HIDDEN if hidden else redacted(argument))
        # `--token=x` has its value in the same word, which redacted() looks at.
        option = argument if argument.startswith("-") and "=" not in argument else ""
    return shown


def redacted_values(values: Any, name: str = "") -> Any:
    """Return nested mappings and lists with secret texts replaced; everything else as it is.

    Examples:
        >>> redacted_values({"lr": 0.1, "hub": {"token": "s3cret-s3cret"}, "eos_token": "</s>"})
        {'lr': 0.1, 'hub': {'token': '***'}, 'eos_token': '</s>'}
    """
    if isinstance(values, Mapping):
        return {key: redacted_values(value, _last(f"{name}.{key}")) for key, value in values.items()}
    if isinstance(values, (list, tuple)):
        # The items of a list have its name: those of `token: [...]` are tokens.
        return [redacted_values(value, name) for value in values]
    if not isinstance(values, str):
        return HIDDEN if isinstance(values, bytes) and is_secret_name(name) else values
    return HIDDEN if _is_secret(name, values) else redacted(values)


def _last(name: str) -> str:
    """Return the last part of a name with dots; of a `key` the one before it, too, which says of what it is."""
    parts = name.split(".")
    return ".".join(parts[-2:] if parts[-1].lower() == "key" else parts[-1:])


def _is_secret(name: str, value: str) -> bool:
    """Whether a text is a secret under this name. OpenRLHF's option `--use_wandb` takes a key."""
    if not is_secret_name(name):
        return "wandb" in name.lower() and _WANDB_KEY.fullmatch(value) is not None
    words = {word.lower() for word in _WORD.findall(name)}
    if not _PASSWORDS.isdisjoint(words):
        return bool(value)
    if words & {"token"} and _SECRETS.isdisjoint(words):
        return _TOKEN_SHAPE.fullmatch(value) is not None and _PLAIN.fullmatch(value) is None
    return _PLAIN.fullmatch(value) is None
