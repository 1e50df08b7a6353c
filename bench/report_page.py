"""Measure the report of ResNet-50: its size, and the time to write and to open it. ``python bench/report_page.py``.

Needs the browser of ``make browser``. With a folder as argument it leaves the page and a picture of each tab there.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import tilewright as tw

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.peers.networks import light

OPENINGS = 5


def main(folder: Path) -> None:
    model = light("resnet50")
    with tw.PassContext(opt_level=3):
        built = tw.build(tw.from_onnx(model.onnx))
    start = time.perf_counter()
    page = tw.report(built, folder / "resnet50.html", list(model.inputs.values()), title="ResNet-50")
    print(f"written in {time.perf_counter() - start:.1f} s: {page.stat().st_size / 1e6:.2f} MB")
    seconds = pictures(page, folder)
    print(f"opened in {statistics.median(seconds):.2f} s (median of {OPENINGS}, least {min(seconds):.2f} s)")


def pictures(page: Path, folder: Path) -> list[float]:
    """Return the seconds until the page is drawn, several times; save a picture of each tab, 1280 pixels wide."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    seconds: list[float] = []
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for _ in range(OPENINGS):
            view: Any = browser.new_page(viewport={"width": 1280, "height": 900})
            start = time.perf_counter()
            view.goto(page.as_uri())
            view.wait_for_selector("body[data-ready]")
            seconds.append(time.perf_counter() - start)
            if len(seconds) < OPENINGS:
                view.close()
        for tab in ("overview", "passes", "graph", "kernels", "memory"):
            view.click(f"#tab-{tab}")
            view.screenshot(path=str(folder / f"{tab}.png"))
        browser.close()
    return seconds


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as made:
            main(Path(made))
