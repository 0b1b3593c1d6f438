"""The runner of the documentation finds blocks, and notices what is wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.page import blocks_of
from tests.docs.test_blocks import matches
from tests.e2e.jobs import environment

PAGE = """
```python
print("one")
```

<!-- output -->
```text
one
```

- in a list

    ```bash
    echo two
    ```
"""


def test_a_block_knows_its_language_its_marker_and_its_line(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(PAGE)

    first, output, last = blocks_of(tmp_path / "page.md")

    assert (first.language, first.code, first.line) == ("python", 'print("one")\n', 3)
    assert (output.marker, output.code) == ("output", "one\n")
    assert (last.language, last.code) == ("bash", "echo two\n")


@pytest.mark.parametrize("code", ["python\nraise ValueError", "bash\nfalse | cat"])
def test_a_block_that_fails_fails_the_page(tmp_path: Path, code: str) -> None:
    (tmp_path / "page.md").write_text(f"```{code}\n```\n")

    command = [sys.executable, "-m", "tests.docs.runner", "page.md"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)

    assert done.returncode != 0
    assert "page.md" in done.stderr


def test_an_ellipsis_stands_for_any_text_and_nothing_else_does() -> None:
    assert matches("run … done", "run a b\n done\n")
    assert not matches("run done", "run and done")
