"""The pictures of pages in the documentation: a real run, in Chromium.

    python -m tests.browser.pictures

Runs `examples/diagnose.py` and writes `docs/images/ui-light.png` and `ui-dark.png`.
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
IMAGES = ROOT / "docs" / "images"


def picture(page: Page, address: str, name: str, size: tuple[int, int], scheme: str) -> None:
    page.open(address, size=size, scheme=scheme)
    page.until(lambda: page.count(".step-body rect"))
    page.until(lambda: page.run(CHART, "accuracy"))
    page.run("window.scrollTo(0, 0)")
    page.picture(name).rename(IMAGES / f"{name}.png")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        job = [sys.executable, str(ROOT / "examples" / "diagnose.py")]
        subprocess.run(job, env=environment(OTEL_ML_DIR=Path(folder)), cwd=folder, check=True, timeout=300)
        [run] = [path for path in Path(folder).glob("diagnose/*") if path.is_dir()]
        chrome = browser()
        with served(Path(folder)) as address:
            page, of_run = Page(chrome), f"{address}run/diagnose/{run.name}/"
            picture(page, of_run, "ui-light", WIDE, "light")
            picture(page, of_run, "ui-dark", WIDE, "dark")
        chrome.quit()


if __name__ == "__main__":
    main()
