"""Run the blocks of one page in order, in one process: `python -m tests.docs.runner PAGE`, in an empty folder.

Python blocks share one namespace, as in a session; bash blocks run with `set -euo pipefail`. Prints what each block
printed as one line of JSON: `[line of the block, output]`.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path

from tests.docs.page import Block, blocks_of
from tests.e2e.jobs import services_of, until


def main() -> None:
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in blocks_of(Path(sys.argv[1])):
        output = run(block, namespace)
        if output is not None:
            print(json.dumps([block.line, output]), flush=True)


def run(block: Block, namespace: dict[str, object]) -> str | None:
    """Run a block and return what it printed, or None where there is nothing to run."""
    if block.marker == "file":
        Path(block.argument or "").write_text(block.code, encoding="utf-8")
        return None
    if block.marker == "when written":
        until(lambda: not services_of(DOCS_PAGE=os.environ["DOCS_PAGE"]))
    elif block.marker is not None:
        return None
    if block.language == "python":
        return run_python(block, namespace)
    if block.language == "bash":
        return run_bash(block)
    return None


def run_python(block: Block, namespace: dict[str, object]) -> str:
    printed = io.StringIO()
    # The lines before the code, so that a traceback names the line of the page.
    code = compile("\n" * (block.line - 1) + block.code, str(block.page), "exec")
    with contextlib.redirect_stdout(printed):
        exec(code, namespace)
    return printed.getvalue()


def run_bash(block: Block) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.code],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{block.page}:{block.line}: exit status {done.returncode}\n{block.code}\n{done.stdout}")
    return done.stdout


if __name__ == "__main__":
    main()
