"""Fit the table of a profile to the width of a terminal."""

from __future__ import annotations

from collections.abc import Sequence

#: Columns that are left out of a narrow table, the least important first.
_LEFT_OUT = ("imbalance", "min", "vector", "GB/s", "Gop/s", "threads", "of")
#: The least characters of the two columns of names.
_LEAST_NAME = 16
_GAP = 2


def fitted(
    header: Sequence[str], rows: Sequence[Sequence[str]], width: int
) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Return a table of at most ``width`` characters: without its least important columns, and with shorter names, as
    far as it takes. (Below 40 characters it may be wider.)

    Args:
        header: the names of the columns, the first of which names kernels, and the last (``"of"``) operators.
    """
    for number in range(len(_LEFT_OUT) + 1):
        kept = [place for place, name in enumerate(header) if name not in _LEFT_OUT[:number]]
        widths = [max(len(row[place]) for row in [header, *rows]) for place in kept]
        names = [place for place, column in enumerate(kept) if column in (0, len(header) - 1)]
        room = width - sum(size for place, size in enumerate(widths) if place not in names) - _GAP * (len(kept) - 1)
        if room >= sum(min(widths[place], _LEAST_NAME) for place in names) or number == len(_LEFT_OUT):
            break
    limits = list(widths)
    if len(names) == 1:
        limits[names[0]] = max(room, 1)
    else:
        first, last = names
        limits[first] = min(widths[first], max(_LEAST_NAME, room // 2, room - widths[last]))
        limits[last] = max(room - limits[first], 1)
    return [header[place] for place in kept], [
        [_shortened(row[column], limits[place]) for place, column in enumerate(kept)] for row in rows
    ]


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else text[: max(0, most - 4)].rstrip() + " ..."
