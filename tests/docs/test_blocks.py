"""Every command and every code block of README and docs runs, and prints what the page says it prints."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.page import Block, blocks_of
from tests.e2e.jobs import ROOT, environment, finished
from tests.ports import free_port

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN = {"python", "bash"}
COMMANDS = {
    "python": 'exec "{python}" "$@"',
    "otel-ml": 'exec "{python}" -m otel_ml_service "$@"',
    "torchrun": 'exec "{python}" -m torch.distributed.run --master-port "{port}" "$@"',
    # Resolves the extras for real, against this checkout and what `make setup` installed of them; nothing is installed.
    "pip": 'exec "{python}" -m pip "${{@/#otel-ml/{source}}}" --quiet --dry-run --no-index --no-build-isolation',
}
READ = {"text", "yaml", "toml", "mermaid"}

pytestmark = pytest.mark.long


def relative(page: Path) -> str:
    return str(page.relative_to(ROOT))


def runs_here(block: Block) -> bool:
    return block.language in RUN and block.marker in {None, "when written"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build this checkout once: pip would have each page ask the build backend for what it needs."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    finished([*build, "--wheel-dir", folder, ROOT], environment(), folder)
    [built] = folder.glob("otel_ml-*.whl")
    return built


def with_commands(folder: Path, *, source: Path = ROOT) -> dict[str, str]:
    """Return an environment in which `otel-ml`, `python` and what `pip` finds as otel-ml are those of this checkout."""
    commands = folder / ".bin"
    commands.mkdir()
    for name, program in COMMANDS.items():
        command = commands / name
        filled = program.format(python=sys.executable, source=source, port=free_port())
        command.write_text(f"#!/usr/bin/env bash\n{filled}\n")
        command.chmod(0o755)
    return environment(PATH=f"{commands}{os.pathsep}{os.environ['PATH']}", DOCS_PAGE=folder)


@pytest.mark.parametrize("page", [page for page in PAGES if any(map(runs_here, blocks_of(page)))], ids=relative)
def test_every_block_of_the_page_runs_and_prints_what_the_page_says(page: Path, wheel: Path, tmp_path: Path) -> None:
    env = with_commands(tmp_path, source=wheel)
    env.pop("OTEL_ML_DIR")  # the page's readers have the default
    env["OTEL_ML_EXIT_WAIT"] = "60"  # a reader's machine is not busy with other pages while the service starts
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    command = [sys.executable, "-m", "tests.docs.runner", str(page)]

    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=110, check=False)

    assert done.returncode == 0, done.stderr
    printed = dict(map(json.loads, done.stdout.splitlines()))
    compare_outputs(list(blocks_of(page)), printed)


def compare_outputs(blocks: list[Block], printed: dict[int, str]) -> None:
    before = ""
    for block in blocks:
        if block.marker == "output":
            assert matches(block.code, before), (
                f"{block.page}:{block.line} says\n{block.code}\nbut it printed\n{before}"
            )
        before = printed.get(block.line, before)


def matches(promised: str, printed: str) -> bool:
    """Compare word by word; `…` stands for any text."""
    pattern = r"\s+".join(re.escape(word).replace("…", ".*?") for word in promised.split())
    return re.fullmatch(rf"\s*{pattern}\s*", printed, re.DOTALL) is not None


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_every_block_has_a_language_and_a_marker_that_mean_something(page: Path) -> None:
    for block in blocks_of(page):
        assert block.language in RUN | READ, f"{page}:{block.line}: {block.language!r}"
        assert block.marker in {None, "output", "file", "run by", "when written"}, (
            f"{page}:{block.line}: {block.marker!r}"
        )
        if block.language == "python":
            ast.parse(block.code)


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_what_another_file_runs_stands_in_that_file(page: Path) -> None:
    for block in blocks_of(page):
        if block.marker == "run by":
            runner = (ROOT / str(block.argument)).read_text(encoding="utf-8")
            if relative(page) not in runner:  # else it reads the page itself
                for line in filter(None, map(str.strip, block.code.splitlines())):
                    assert line in runner, f"{page}:{block.line}: {line}"
