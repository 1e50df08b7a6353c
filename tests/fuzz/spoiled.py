"""Spoil valid texts and plain data: by characters, by tokens, and by values."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from typing import Any

_TOKEN = re.compile(r"\s+|`[^`\n]*`|\"(?:[^\"\\\n]|\\.)*\"|[^\W\d][\w.#]*|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|->|:\+|//|.")

#: Numbers at the limits of types, and beyond.
NUMBERS = (
    *("0", "-0", "-1", "1", "2", "127", "128", "255", "256", "65536", "1.5", "-1.5", "1e39", "1e999", "nan", "inf"),
    *("2147483647", "2147483648", "4294967296", "9223372036854775807", "9223372036854775808", "18446744073709551616"),
    *("-9223372036854775808", "1e-400", "0.1", "9" * 40, "9" * 5000, "1_0", "0x10", "007", "٣", "²"),
)

#: Names that are code, keywords, empty, or look like others.
NAMES = (
    *(
        "a; import os",
        "__import__('os').system('true')",
        "",
        " ",
        "\n",
        "\t",
        "\0",
        "\x7f",
        "\u202e",
        "\ud800",
        "\u0435",
        "\ufb01",
    ),
    *("lambda", "None", "class", "def", "for", "return", "int", "range", "np", "numba", "exec", "__name__", "self"),
    *(
        "define",
        "ret",
        "undef",
        "poison",
        "%0",
        "@main",
        "main",
        "const#0",
        "`",
        "\\",
        '"',
        "'",
        "{",
        "}",
        "${x}",
        "%s",
    ),
    *("<script>alert(1)</script>", "&lt;", "../../x", "/", "a/b", "x" * 300, "🙂", "\\x", "\\u12", '\\"'),
)

#: The most characters of a spoiled text: brackets that are nested in nested ones come to gigabytes.
_LONGEST = 100_000

_BRACKETS = ("(", "[", "{", ")", "]", "}")


def changed_text(rng: random.Random, text: str, others: Sequence[str]) -> str:
    """Return ``text`` with a few changes, some of which take pieces from other texts."""
    if rng.random() < 0.25:
        return _changed_characters(rng, text)
    tokens = _TOKEN.findall(text)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        if not tokens:
            break
        _CHANGES[rng.randrange(len(_CHANGES))](rng, tokens, others)
    return "".join(tokens)[:_LONGEST]


def _changed_characters(rng: random.Random, text: str) -> str:
    characters = list(text)
    for _ in range(rng.choice((1, 1, 2, 4))):
        place = rng.randrange(len(characters) + 1)
        what = rng.randrange(5)
        if what == 0:
            del characters[place : place + rng.choice((1, 1, 3, 20))]
        elif what == 1:
            characters.insert(place, chr(rng.choice((rng.randrange(128), rng.randrange(0x3000)))))
        elif what == 2:
            characters[place:place] = characters[place : place + rng.choice((1, 4, 30))]
        elif what == 3:
            del characters[place:]
        else:
            characters.insert(place, rng.choice("(){}[],:=`\"'#@%.-+ \n"))
    return "".join(characters)


def _places(tokens: list[str], pattern: str) -> list[int]:
    return [place for place, token in enumerate(tokens) if re.match(pattern, token)]


def _number(rng: random.Random, tokens: list[str], others: Sequence[str]) -> None:
    places = _places(tokens, r"\d")
    if places:
        tokens[rng.choice(places)] = rng.choice(NUMBERS)


def _name(rng: random.Random, tokens: list[str], others: Sequence[str]) -> None:
    places = _places(tokens, r"[^\W\d]|`|\"")
    if places:
        place, name = rng.choice(places), rng.choice(NAMES)
        quote = tokens[place][0] if tokens[place][0] in '`"' else rng.choice(("", "`"))
        tokens[place] = quote + name + quote


def _exchange(rng: random.Random, tokens: list[str], others: Sequence[str]) -> None:
    a, b = rng.randrange(len(tokens)), rng.randrange(len(tokens))
    tokens[a], tokens[b] = tokens[b], tokens[a]


def _same_kind(rng: random.Random, tokens: list[str], others: Sequence[str]) -> None:
    """Put another name of the text in place of a name: undefined, of another type, or in another scope."""
    places = _places(tokens, r"[^\W\d]")
    if len(places) > 1:
        tokens[rng.choice(places)] = tokens[rng.choice(places)]


def _remove(rng: random.Random, tokens: list[str], others: Sequence[str]) -> None:
    place = rng.randrange(len(tokens))
    del tokens[place : place + rng.choice((1, 1, 2, 10))]


def _repeat(rng: random.Random, tokens: list[str], others: Sequence[str]) -> None:
    place = rng.randrange(len(tokens))
    piece = tokens[place : place + rng.choice((1, 2, 5, 30))]
    tokens[place:place] = piece * rng.choice((1, 1, 2, 8))


def _nest(rng: random.Random, tokens: list[str], others: Sequence[str]) -> None:
    """Repeat the bracket at a place, and its end, many times."""
    places = _places(tokens, r"[(\[{]$")
    if places:
        place, depth = rng.choice(places), rng.choice((2, 40, 300, 3000))
        closing = dict(zip(_BRACKETS[:3], _BRACKETS[3:], strict=True))[tokens[place]]
        end = next((i for i in range(place, len(tokens)) if tokens[i] == closing), len(tokens) - 1)
        tokens[end] = tokens[end] * depth
        tokens[place] = tokens[place] * depth


def _splice(rng: random.Random, tokens: list[str], others: Sequence[str]) -> None:
    piece = _TOKEN.findall(rng.choice(others))
    start = rng.randrange(len(piece) or 1)
    place = rng.randrange(len(tokens))
    tokens[place : place + rng.choice((0, 0, 3))] = piece[start : start + rng.choice((1, 3, 10, 60))]


_CHANGES = (_number, _number, _name, _exchange, _same_kind, _same_kind, _remove, _repeat, _nest, _splice)


#: Values that plain data rarely has.
VALUES: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 3, 2**31, 2**63, 2**70, -(2**63), 1.5, 1e300, float("nan"), float("inf")),
    *("", "x", "float32", "numba", [], {}, [[]], [0], {"symbol": "n"}, {"x": 1}, (1, 2), 3j, b"x", object),
)


def changed_data(rng: random.Random, data: Any, plain: bool = False) -> Any:
    """Return plain data with another value at a random place.

    Args:
        plain: use only values that JSON has.
    """
    if rng.random() < 0.15 or not isinstance(data, (dict, list, tuple)) or not data:
        values = [value for value in VALUES if not plain or _is_json(value)]
        return rng.choice(values)
    copied = dict(data) if isinstance(data, dict) else list(data)
    place = rng.choice(list(copied) if isinstance(copied, dict) else range(len(copied)))  # type: ignore[arg-type]
    if rng.random() < 0.1:
        del copied[place]
    else:
        copied[place] = changed_data(rng, copied[place], plain)
    return tuple(copied) if isinstance(data, tuple) else copied


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True
