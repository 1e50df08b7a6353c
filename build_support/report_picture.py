"""Write ``docs/images/report.png``, the picture of a report in README.md: ``python build_support/report_picture.py``.

The report is that of the digits network (``examples/digits``), shown by Chromium: ``make browser`` installs what this
needs. The picture is made anew when the page changes.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

import tilewright as tw

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "images" / "report.png"
#: In pixels of the page.
SIZE = {"width": 1280, "height": 720}
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def write_report(path: Path) -> None:
    sys.path.insert(0, str(ROOT / "examples" / "digits"))
    from data import load_digits, load_weights
    from model import build_module

    images, _ = load_digits()
    with tw.PassContext(opt_level=3):
        model = tw.build(build_module(load_weights()))
    tw.report(model, path, [images[:256]])


def photograph(page: Path, picture: Path, tab: str) -> None:
    """Save the upper part of the tab ``tab`` of the page."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise SystemExit(f"no browser found; expected one of {', '.join(BROWSERS)}: make browser installs one")
    with sync_playwright() as playwright:
        shown = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"])
        opened = shown.new_page(viewport=SIZE, color_scheme="light")
        opened.goto(page.as_uri())
        opened.wait_for_selector("body[data-ready]")
        opened.click(f"#tab-{tab}")
        opened.screenshot(path=picture)
        shown.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        write_report(page)
        PICTURE.parent.mkdir(exist_ok=True)
        photograph(page, PICTURE, "kernels")


if __name__ == "__main__":
    main()
