"""Provide the command line: ``tilewright run model.onnx`` and its siblings; docs/cli.md describes all of them.

Each file contains a command, or code that several share. Standard output carries results only, as tables or JSON;
progress and errors go to standard error.
"""

from __future__ import annotations

from tilewright.cli.group import cli as cli
from tilewright.cli.group import main as main
