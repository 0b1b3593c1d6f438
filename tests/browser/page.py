"""A page in Chromium, asked what a person sees in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.e2e.jobs import ROOT
from tests.waiting import T, eventually

if TYPE_CHECKING:
    from selenium.webdriver import Chrome
    from selenium.webdriver.remote.webelement import WebElement

PICTURES = ROOT / "build" / "screenshots"
TIMEOUT = 120.0
DESKTOP, PHONE = (1400, 1000), (390, 844)

_FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")

_SEEN = """
const parts = [];
const walk = node => {
    if (node.nodeType === Node.TEXT_NODE) { parts.push(node.textContent); return; }
    if (node.nodeType !== Node.ELEMENT_NODE || ['SCRIPT', 'STYLE', 'TEMPLATE'].includes(node.nodeName)) return;
    const boxless = node.nodeName === 'SLOT' || getComputedStyle(node).display === 'contents';
    if (!boxless && !node.checkVisibility({visibilityProperty: true})) return;
    const slotted = node.nodeName === 'SLOT' ? node.assignedNodes() : [];
    (slotted.length ? slotted : (node.shadowRoot || node).childNodes).forEach(walk);
};
walk(document.body);
return parts.map(part => part.trim()).filter(Boolean).join('\\n');
"""

_COUNT = """
const found = (root, selector) => {
    const inside = [...root.querySelectorAll(selector)];
    const hosts = [...root.querySelectorAll('*')].filter(node => node.shadowRoot);
    return inside.concat(...hosts.map(host => found(host.shadowRoot, selector)));
};
const [outer, ...inner] = arguments[0].split(' ');
const within = node => [node, ...(node.shadowRoot ? [node.shadowRoot] : [])];
let nodes = found(document, outer);
for (const part of inner) nodes = nodes.flatMap(within).flatMap(node => found(node, part));
return new Set(nodes.filter(node => node.getBoundingClientRect().width > 0)).size;
"""


def pressed(text: str) -> str:
    """Return `text` without its white space."""
    return "".join(text.split())


def browser() -> Chrome:
    """Start the Chromium that `.ci/browser` finds or installs."""
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    program = shutil.which(os.environ.get("CHROMIUM") or "chromium")
    driver = shutil.which(os.environ.get("CHROMEDRIVER") or "chromedriver")
    assert program, "No Chromium: run .ci/browser, or set CHROMIUM and CHROMEDRIVER."
    assert driver, "No chromedriver: run .ci/browser, or set CHROMIUM and CHROMEDRIVER."
    options = ChromeOptions()
    options.binary_location = program
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for flag in _FLAGS:
        options.add_argument(flag)
    return Chrome(options=options, service=Service(driver))


class Page:
    """The browser's one page."""

    def __init__(self, chrome: Chrome) -> None:
        self._chrome = chrome
        self._chrome.set_page_load_timeout(TIMEOUT)
        self._chrome.set_script_timeout(TIMEOUT)

    def open(self, address: str, *, size: tuple[int, int] = DESKTOP, scheme: str = "light") -> None:
        """Load `address` anew, on a screen of `size` whose owner prefers the color `scheme`."""
        width, height = size
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == PHONE}
        self._chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        preferred = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self._chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", preferred)
        self._chrome.get("about:blank")  # else another fragment of the same page would not load it
        self._chrome.get_log("browser")
        self._chrome.get(address)

    def run(self, script: str, *arguments: object) -> Any:
        """Return what `script` returns in the page."""
        return self._chrome.execute_script(script, *arguments)

    def run_until_done(self, script: str, *arguments: object) -> Any:
        """Return what `script` hands to its last argument, a function, when it is done."""
        return self._chrome.execute_async_script(script, *arguments)

    @property
    def title(self) -> str:
        return self._chrome.title

    @property
    def address(self) -> str:
        return self._chrome.current_url

    @property
    def text(self) -> str:
        """All text that is visible, also in shadow roots, a piece a line."""
        return str(self.run(_SEEN))

    @property
    def errors(self) -> list[str]:
        """What the page wrote to the console as an error since the last look."""
        return [entry["message"] for entry in self._chrome.get_log("browser") if entry["level"] == "SEVERE"]

    def shows(self, *texts: str) -> None:
        """Wait until all of `texts` are visible, whatever elements their words are in."""
        self.until(lambda: all(pressed(text) in pressed(self.text) for text in texts), texts)

    def count(self, selector: str) -> int:
        """Return how many elements match and have a size, also in shadow roots; each compound may be in another one."""
        return int(self.run(_COUNT, selector))

    def until(self, probe: Callable[[], T], wanted: object = "") -> T:
        """Return the first truthy result of `probe`; what the page shows instead is in the failure."""
        try:
            return eventually(probe, timeout=TIMEOUT)
        except AssertionError as error:
            raise AssertionError(f"{error} Wanted {wanted!r}. {self.address} shows:\n{self.text}") from None

    def all(self, selector: str) -> list[WebElement]:
        return self._chrome.find_elements("css selector", selector)

    def type(self, selector: str, text: str) -> None:
        [field] = self.all(selector)
        field.send_keys(text)

    def press(self, selector: str) -> None:
        """Press the pointer on the first element that matches, and hold it."""
        from selenium.webdriver import ActionChains

        ActionChains(self._chrome).click_and_hold(self.all(selector)[0]).perform()

    def release(self) -> None:
        """Let the pointer go where it is."""
        from selenium.webdriver import ActionChains

        ActionChains(self._chrome).release().perform()

    def picture(self, name: str) -> Path:
        """Keep what is to be seen now as `build/screenshots/<name>.png`."""
        PICTURES.mkdir(parents=True, exist_ok=True)
        file = PICTURES / f"{name}.png"
        assert self._chrome.save_screenshot(file)
        return file
