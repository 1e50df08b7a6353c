"""Run the command line: ``python -m tilewright``."""

from __future__ import annotations

import sys

#: The exit code of an interrupted command (``cli.console`` is not imported yet).
_INTERRUPTED = 130

if __name__ == "__main__":
    try:
        from tilewright.cli import main
    except KeyboardInterrupt:  # some users interrupt already the import
        sys.exit(_INTERRUPTED)
    main()
