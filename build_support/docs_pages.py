"""Lay out the pages of ``make docs`` for Sphinx: ``python build_support/docs_pages.py FOLDER``.

The pages are those of docs/, README.md as the first and CHANGELOG.md; the reference pages are written here. They list
the public names, whose docstrings and signatures Sphinx reads from the installed package.
"""

from __future__ import annotations

import inspect
import posixpath
import shutil
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from readme_links import relinked, source_url
from sphinx.ext.napoleon import Config, GoogleDocstring

import tilewright
from tilewright import graphir, passes, tensorir
from tilewright.graphir.op import ALIASES, Operator

ROOT = Path(__file__).resolve().parents[1]
#: Files beside docs/ that are pages, and their places.
BESIDE = {"README.md": "index.md", "CHANGELOG.md": "changelog.md"}

#: An operator's attributes are parameters of its calls.
_ATTRIBUTES = Config(napoleon_custom_sections=[("Attributes", "params_style")])

#: The order of the pages, in the sections of the menu.
MENU = {
    "Tutorial": ["tutorial/1_first_model", "tutorial/2_own_pass", "tutorial/3_own_kernel", "tutorial/4_own_operator"],
    "How to": [
        *(
            "howto/onnx",
            "torch",
            "howto/gradients",
            "howto/deploy",
            "howto/cache",
            "debugging",
            "extending",
            *("extending/operators", "extending/passes", "extending/loops", "extending/compiled"),
            "loops",
            "scheduling",
            "howto/tvm",
        ),
    ],
    "Reference": [
        *("reference/tilewright", "reference/graphir", "reference/operators", "Table of operators <operators>"),
        "Table of PyTorch overloads <torch_overloads>",
        *("reference/tensorir", "reference/passes", "cli", "onnx", "performance"),
    ],
    "Design": ["architecture", "reliability", "changelog"],
}


def stage(folder: Path) -> None:
    """Write all pages into ``folder``, from scratch."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder)
    for path in sorted((ROOT / "docs").rglob("*.md")):
        name = path.relative_to(ROOT / "docs").as_posix()
        (folder / name).write_text(_page(f"docs/{name}", name), encoding="utf-8")
    for source, name in BESIDE.items():
        (folder / name).write_text(_page(source, name), encoding="utf-8")
    with (folder / "index.md").open("a", encoding="utf-8") as index:
        index.write(_menu())
    (folder / "reference").mkdir()
    for name, text in reference_pages().items():
        (folder / "reference" / f"{name}.rst").write_text(text, encoding="utf-8")


def _page(source: str, name: str) -> str:
    """The text of a page, whose links lead to pages, or to the repository where a file is no page.

    Args:
        source: its file, relative to the root.
        name: its place among the pages.
    """
    url = source_url((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

    def target(path: str) -> str | None:
        if path.startswith("docs/") or path in BESIDE:
            return posixpath.relpath(BESIDE.get(path, path.removeprefix("docs/")), posixpath.dirname(name) or ".")
        return None if url is None else f"{url}/blob/main/{path}"

    return relinked((ROOT / source).read_text(encoding="utf-8"), posixpath.dirname(source), target)


def _menu() -> str:
    trees = [
        f"```{{toctree}}\n:caption: {caption}\n:hidden:\n\n" + "\n".join(pages) + "\n```\n"
        for caption, pages in MENU.items()
    ]
    return "\n" + "\n".join(trees)


def reference_pages() -> dict[str, str]:
    """Return the pages in the folder ``reference``, as reStructuredText."""
    return {
        "tilewright": _package("tilewright", tilewright),
        "graphir": _package("Graphs", graphir),
        "tensorir": _package("Loops", tensorir),
        "passes": _package("Passes", passes, _table_of_passes()),
        "operators": _operators(),
    }


def _package(title: str, module: ModuleType, before: str = "") -> str:
    """The classes of a package, then its functions, without its submodules and what the front page has."""
    values = {name: getattr(module, name) for name in module.__all__}
    shared = [name for name in values if module is not tilewright and name in tilewright.__all__]
    own = [name for name, value in values.items() if name not in shared and not inspect.ismodule(value)]
    classes = [name for name in own if inspect.isclass(values[name])]
    text = [_heading(title, "="), f".. py:module:: {module.__name__}\n", f"{inspect.getdoc(module)}\n"]
    if shared:
        text.append(f"Also here: {', '.join(f':class:`tilewright.{name}`' for name in shared)}.\n")
    text.append(before)
    for name in [*classes, *(name for name in own if name not in classes)]:
        kind = "class" if name in classes else "function" if callable(values[name]) else "data"
        text.append(f".. auto{kind}:: {module.__name__}.{name}\n")
    return "\n".join(text)


def _table_of_passes() -> str:
    rows = []
    for name in passes.list_passes():
        found = passes.get_pass(name)
        rows.append((f"``{name}``", str(found.info.opt_level), (inspect.getdoc(found) or "").split("\n\n")[0]))
    return _heading("The passes", "-") + _table(("pass", "from opt_level", "what it does"), rows)


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    text = ".. list-table::\n   :header-rows: 1\n\n"
    for row in (head, *rows):
        for number, cell in enumerate(row):
            text += f"   {'  ' if number else '* '}- {textwrap.indent(cell, ' ' * 7).lstrip()}\n"
    return text


def _operators() -> str:
    """Every operator with its signature: an instance, whose parameters are those of its attributes."""
    names: dict[str, list[str]] = {}
    for alias, operator in ALIASES.items():
        names.setdefault(operator.name, []).append(alias)
    text = [
        _heading("Operators", "="),
        "Operators are functions of ``tilewright.graphir``, those of neural networks in ``tilewright.graphir.nn``.",
        "The :doc:`table of operators <../operators>` lists their element types, and how each may be fused.\n",
    ]
    for name in sorted(graphir.list_operators()):
        text.append(_operator(graphir.get_operator(name), names.get(name, [])))
    return "\n".join(text)


def _operator(operator: Operator, aliases: list[str]) -> str:
    parts = operator.name.split(".")
    package = ".".join(["tilewright.graphir", *parts[:-1]])
    signature = str(inspect.signature(operator))
    text = (inspect.getdoc(operator) or "").removeprefix(f"{operator.name}{signature}").lstrip()
    body = str(GoogleDocstring(text, _ATTRIBUTES))
    if aliases:
        body += f"\n\nAlso called {', '.join(f'``{alias}``' for alias in aliases)}."
    head = f".. py:function:: {parts[-1]}{signature}\n   :module: {package}\n\n"
    return head + textwrap.indent(body, "   ") + "\n"


def _heading(title: str, line: str) -> str:
    return f"{title}\n{line * len(title)}\n\n"


if __name__ == "__main__":
    stage(Path(sys.argv[1]))
