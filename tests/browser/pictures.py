"""The pictures of pages in the documentation: a real run, in Chromium.

    python -m tests.browser.pictures

Runs `examples/diagnose.py` and writes `docs/images/ui-light.png` and `ui-dark.png`; `examples/pipeline.py`, and writes
`step-light.png` and `step-dark.png`: what every rank did in one of its steps.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.browser.page import Page, browser
from tests.browser.test_ui_page import CHART, served
from tests.e2e.jobs import ROOT, environment

WIDE = (1000, 1180)
ONE_STEP = (1000, 470)
IMAGES = ROOT / "docs" / "images"

TO_THE_STEP = "window.scrollTo(0, document.querySelector('.step-body').closest('section').offsetTop - 12)"


def picture(page: Page, address: str, name: str, size: tuple[int, int], scheme: str) -> None:
    page.open(address, size=size, scheme=scheme)
    page.until(lambda: page.count(".step-body rect"))
    page.until(lambda: page.run(CHART, "accuracy"))
    page.run("window.scrollTo(0, 0)")
    page.picture(name).rename(IMAGES / f"{name}.png")


def picture_of_step(page: Page, address: str, name: str, scheme: str) -> None:
    page.open(address, size=ONE_STEP, scheme=scheme)
    page.until(lambda: page.count(".step-body rect"))
    page.run(TO_THE_STEP)
    page.picture(name).rename(IMAGES / f"{name}.png")


def run_of(example: str, folder: Path) -> Path:
    job = [sys.executable, str(ROOT / "examples" / f"{example}.py")]
    subprocess.run(job, env=environment(OTEL_ML_DIR=folder), cwd=folder, check=True, timeout=300)
    [run] = [path for path in folder.glob(f"{example}/*") if path.is_dir()]
    return run


def main() -> None:
    with tempfile.TemporaryDirectory() as named:
        folder = Path(named)
        slow_rank, pipeline = run_of("diagnose", folder), run_of("pipeline", folder)
        chrome = browser()
        with served(folder) as address:
            page = Page(chrome)
            for scheme in ("light", "dark"):
                picture(page, f"{address}run/diagnose/{slow_rank.name}/", f"ui-{scheme}", WIDE, scheme)
                picture_of_step(page, f"{address}run/pipeline/{pipeline.name}/", f"step-{scheme}", scheme)
        chrome.quit()


if __name__ == "__main__":
    main()
