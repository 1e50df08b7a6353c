"""Read a page of text: ``python examples/ocr/run.py [PICTURE ...]``.

Without arguments it reads a page that it has drawn itself, once as it is and once upside down. The networks are the
trained ones of the package ``rapidocr-onnxruntime``, compiled by Tilewright; ``make models`` installs the packages.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from rich.console import Console

from page import draw_page, load_page
from reader import NETWORKS, Reader, compile_network


def main() -> int:
    """Do the job; return the exit status."""
    console = Console()
    paths = [Path(argument) for argument in sys.argv[1:]]
    missing = [str(path) for path in paths if not path.is_file()]
    if missing:
        console.print(f"No such file: {', '.join(missing)}")
        return 2
    if paths:
        pictures = {str(path): load_page(path) for path in paths}
    else:
        page = draw_page()
        pictures = {"a page": page, "the same page upside down": np.ascontiguousarray(page[::-1, ::-1])}
    networks = {}
    for name in NETWORKS:
        start = time.perf_counter()
        networks[name] = compile_network(name)
        console.print(f"Imported and compiled the network for {name} in {time.perf_counter() - start:.1f} s")
    reader = Reader(networks)
    for title, picture in pictures.items():
        start = time.perf_counter()
        lines = reader.read(picture)
        console.print(f"\n{title}, read in {time.perf_counter() - start:.2f} s:")
        for line in lines:
            console.print(f"  {line.score:.3f}  {line.text}", highlight=False, markup=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
