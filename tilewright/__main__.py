"""``python -m tilewright``: the command line."""

from __future__ import annotations

import sys

#: The exit code of what a user interrupts (``cli.console`` cannot be asked before it is imported).
_INTERRUPTED = 130

if __name__ == "__main__":
    try:
        from tilewright.cli import main
    except KeyboardInterrupt:  # importing takes longer than some users wait
        sys.exit(_INTERRUPTED)
    main()
