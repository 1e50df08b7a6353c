"""Read the undefined symbols of object files of 64-bit systems: ELF, COFF and Mach-O, all little-endian."""

from __future__ import annotations

import struct

_ELF, _MACH_O = b"\x7fELF", b"\xcf\xfa\xed\xfe"


def undefined_symbols(content: bytes) -> set[str]:
    """Return the symbols that an object file refers to and does not define, as a C compiler of its system writes them:
    Mach-O's names without their first underscore."""
    if content[:4] == _ELF:
        return _of_elf(content)
    if content[:4] == _MACH_O:
        return {name.removeprefix("_") for name in _of_mach_o(content)}
    return _of_coff(content)


def _text(content: bytes, start: int) -> str:
    """Return the string at ``start``, which a zero ends."""
    return content[start : content.index(b"\0", start)].decode()


def _of_elf(content: bytes) -> set[str]:
    (sections,) = struct.unpack_from("<Q", content, 0x28)
    size, count = struct.unpack_from("<HH", content, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", content, sections + size * number) for number in range(count)]
    found = set()
    for _, kind, _, _, start, length, link, *_ in headers:
        if kind == 2:  # SHT_SYMTAB
            names = headers[link][4]
            entries = struct.iter_unpack("<IBBHQQ", content[start : start + length])
            found |= {_text(content, names + name) for name, _, _, section, *_ in entries if name and section == 0}
    return found


def _of_coff(content: bytes) -> set[str]:
    start, count = struct.unpack_from("<II", content, 8)
    names = start + 18 * count
    found, number = set(), 0
    while number < count:
        name, value, section, _, storage, auxiliary = struct.unpack_from("<8sIhHBB", content, start + 18 * number)
        number += 1 + auxiliary
        if storage == 2 and section == 0 and value == 0:  # IMAGE_SYM_CLASS_EXTERNAL, IMAGE_SYM_UNDEFINED
            long = name[:4] == bytes(4)
            found.add(
                _text(content, names + struct.unpack_from("<I", name, 4)[0]) if long else name.rstrip(b"\0").decode()
            )
    return found


def _of_mach_o(content: bytes) -> set[str]:
    (commands,) = struct.unpack_from("<I", content, 16)
    place, found = 32, set()
    for _ in range(commands):
        command, size = struct.unpack_from("<II", content, place)
        if command == 2:  # LC_SYMTAB
            start, count, names, _ = struct.unpack_from("<IIII", content, place + 8)
            for name, kind, _, _, _ in struct.iter_unpack("<IBBHQ", content[start : start + 16 * count]):
                if kind & 0x0E == 0 and not kind & 0xE0:  # N_UNDF, and no entry for debuggers
                    found.add(_text(content, names + name))
        place += size
    return found
