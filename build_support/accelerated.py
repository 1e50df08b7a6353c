"""Build the accelerated wheel: the strictly typed core of Tilewright, compiled by mypyc.

Everything happens below ``build/accelerated/``, and nothing there is read by a plain install:

* ``source/tilewright`` -- the input of mypyc: all packages under their import names, with compiled modules rewritten
  (:mod:`node_classes`, :mod:`records`, :func:`rewritten`);
* ``c`` -- the generated C;
* ``project`` -- the input of setuptools: the packages as they are, and beside them the extension modules.

A module's ``.py`` file is in the wheel too, for readers and tracebacks; Python prefers the extension module.
"""

from __future__ import annotations

import ast
import collections
import os
import re
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from node_classes import expand
from readme_links import write_description
from records import write_out

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "accelerated"

#: The compiled modules, as patterns of files; packages' ``__init__`` stay interpreted, since their lazy names are read
#: from their byte code (``tensorir/lazy.py``).
COMPILED = (
    "tensorir/consing.py",
    "tensorir/node.py",
    "tensorir/arithmetic.py",
    "tensorir/expr.py",
    "tensorir/stmt.py",
    "tensorir/occurrences.py",
    "tensorir/functor.py",
    "tensorir/folding.py",
    "tensorir/conditions.py",
    "tensorir/structural.py",
    "tensorir/encoding.py",
    "tensorir/spelling.py",
    "tensorir/printer*.py",
    "tensorir/arith/*.py",
    "tensorir/schedule/*.py",
    "graphir/visitor.py",
    "graphir/structural.py",
    "graphir/dims.py",
    "graphir/layout.py",
    "graphir/layout_rewrite.py",
    "graphir/spelling.py",
    "graphir/printer*.py",
    "graphir/types.py",
    "passes/graph/*.py",
    "passes/lower/*.py",
    "passes/schedule/*.py",
    "passes/tensor/*.py",
    "passes/tensor/intrin/*.py",
    "codegen/analysis.py",
    "codegen/llvm/*.py",
)

#: Compiled code releases the object of a local name after its last use, not where the function ends. So modules that
#: lend memory to C stay interpreted.
_LENDS_MEMORY = "hands addresses of memory that local names own to C"

#: ``tensorir.compute`` names axes after the parameters of the formula, which compiled functions do not reveal.
_FORMULAS = "parameters of its functions name axes"

#: mypyc (2.4) fails at methods with closures in classes that are decorated, as passes are.
_CLOSURES = "has closures in a method of a decorated class"

#: Modules that match but stay interpreted, each with the reason.
INTERPRETED = {
    "passes/schedule/rule.py": "users derive rules from its classes",
    "passes/schedule/settings.py": "makes classes of options, derived from one of its own, when rules are registered",
    "tensorir/schedule/handles.py": "a schedule itself reports a handle of the wrong kind",
    "passes/lower/parts.py": _FORMULAS,
    "passes/lower/primitive.py": _FORMULAS,
    "passes/graph/common_subexpr.py": _CLOSURES,
    "passes/graph/dead_code.py": _CLOSURES,
    "passes/graph/fold_constant.py": _CLOSURES,
    "passes/graph/fuse_attention.py": _CLOSURES,
    "passes/graph/narrow_products.py": _CLOSURES,
    "passes/graph/pad_rows.py": _CLOSURES,
    "passes/graph/simplify_expr.py": _CLOSURES,
    "passes/graph/widen_halves.py": _CLOSURES,
    "passes/graph/winograd.py": _CLOSURES,
    "codegen/llvm/bounds.py": _LENDS_MEMORY,
    "codegen/llvm/call.py": _LENDS_MEMORY,
    "codegen/llvm/clock.py": _LENDS_MEMORY,
    "codegen/llvm/compile.py": _LENDS_MEMORY,
    "codegen/llvm/emission.py": _LENDS_MEMORY,
    "codegen/llvm/headroom.py": _LENDS_MEMORY,
    "codegen/llvm/system_symbols.py": _LENDS_MEMORY,
    "codegen/llvm/team.py": _LENDS_MEMORY,
}

#: Options of mypy. ``make typecheck`` checks types against all dependencies; where the wheel is built they may be
#: missing, and only the compiled modules count.
OPTIONS = (
    "--config-file=",
    "--follow-imports=silent",
    "--ignore-missing-imports",
    "--no-warn-unused-ignores",
    "--disable-error-code=misc",
    "--disable-error-code=type-var",
)


def build(wheel_directory: str, config_settings: Any = None) -> str:
    """Build the wheel into ``wheel_directory``; return its name."""
    from setuptools import build_meta

    stage()
    here = os.getcwd()
    os.chdir(BUILD / "project")
    try:
        return str(build_meta.build_wheel(wheel_directory, config_settings))
    finally:
        os.chdir(here)


def compiled_modules(root: Path = ROOT) -> list[Path]:
    """Return the compiled files, relative to ``root``."""
    found = sorted({path.relative_to(root) for pattern in COMPILED for path in root.glob(pattern)})
    return [path for path in found if path.name != "__init__.py" and path.as_posix() not in INTERPRETED]


def stage() -> None:
    """Write ``source`` and ``project`` from scratch."""
    shutil.rmtree(BUILD, ignore_errors=True)
    source, project = BUILD / "source" / "tilewright", BUILD / "project" / "tilewright"
    ignore = shutil.ignore_patterns("__pycache__", "*.so")
    rooms = package_folders((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for target in (source, project):
        for name, folder in sorted(rooms.items()):  # the front door comes first, as it contains the others
            shutil.copytree(ROOT / folder, target.joinpath(*name.split(".")[1:]), ignore=ignore)
        shutil.copy(ROOT / "build_support" / "described.py", target / "tensorir" / "described.py")
    for path in compiled_modules():
        text = (ROOT / path).read_text(encoding="utf-8")
        expanded = write_out(expand(text, str(path)))
        (source / path).write_text(rewritten(expanded), encoding="utf-8")
        if expanded != text:  # so that tracebacks show the compiled lines
            (project / path).write_text(expanded, encoding="utf-8")
    shutil.copy(ROOT / "LICENSE", BUILD / "project" / "LICENSE")
    write_description(ROOT, BUILD / "project")
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (BUILD / "project" / "pyproject.toml").write_text(as_plain_project(settings), encoding="utf-8")
    (BUILD / "project" / "setup.py").write_text(
        f"import sys\n\nsys.path.insert(0, {str(ROOT / 'build_support')!r})\n"
        "from accelerated import builder, extensions\nfrom setuptools import setup\n\n"
        'setup(ext_modules=extensions(), cmdclass={"build_ext": builder()})\n'
    )


def package_folders(settings: str) -> dict[str, str]:
    """Parse ``[tool.setuptools.package-dir]``: the folder of each import name that has one of its own."""
    return dict(re.findall(r'^"([\w.]+)" = "(\w+)"$', _section(settings, "tool.setuptools.package-dir"), re.MULTILINE))


def as_plain_project(settings: str) -> str:
    """Return pyproject.toml for folders that match their import names, built by setuptools alone."""
    without = settings.replace(_section(settings, "tool.setuptools.package-dir"), "")
    return re.sub(
        r"^build-backend = .*\nbackend-path = .*$", 'build-backend = "setuptools.build_meta"', without, flags=re.M
    )


def _section(settings: str, name: str) -> str:
    found = re.search(rf"^\[{re.escape(name)}\]\n(?:(?!\[).*\n)*", settings, re.MULTILINE)
    if found is None:
        raise ValueError(f"pyproject.toml has no [{name}]")
    return found.group()


def builder() -> type[Any]:
    """Return setuptools' command, but for that all cores compile the C files of a module, a file for each of its
    Python files; setuptools would compile one after another."""
    from setuptools.command.build_ext import build_ext

    class Parallel(build_ext):
        def build_extensions(self) -> None:
            compiled = self.compiler.compile

            def side_by_side(sources: list[str], **options: Any) -> list[str]:
                with ThreadPoolExecutor(os.cpu_count()) as pool:
                    objects = pool.map(lambda source: compiled([source], **options), sources)
                    return [name for names in objects for name in names]

            self.compiler.compile = side_by_side
            super().build_extensions()

    return Parallel


def extensions() -> list[Any]:
    """Return the extension modules of ``source``, as setuptools takes them; write their C."""
    from mypyc.build import mypycify

    sys.setrecursionlimit(10_000)
    here = os.getcwd()
    os.chdir(BUILD / "source")  # tracebacks name files as they are named here
    try:
        made = list(
            mypycify(
                [*OPTIONS, *(f"tilewright/{path.as_posix()}" for path in compiled_modules())],
                opt_level=os.environ.get("TILEWRIGHT_MYPYC_OPT", "2"),
                debug_level="0",
                multi_file=True,
                target_dir=str(BUILD / "c"),
                group_name="tilewright",
            )
        )
    finally:
        os.chdir(here)
    for path in sorted((BUILD / "c").glob("*.c")):
        _refuse_miscompiled(path.read_text(encoding="utf-8"))
    for each in made:
        # Compilers differ in their warnings. This one detects a fault of mypyc (2.4): variables that a function's
        # closures share, read in a ``with`` block and after it.
        each.extra_compile_args = [*each.extra_compile_args, "-Wno-error", "-Werror=maybe-uninitialized", *_LINKED]
    return made


#: Functions of the library call each other directly, not through the table in which another library could replace them:
#: most compiled modules call functions of another file.
_LINKED = ("-fvisibility=hidden", "-fno-semantic-interposition", "-fno-plt")


#: Bases of classes that mypyc does not make native, or whose subclasses are never interpreted.
_NOT_NATIVE = ("NamedTuple", "TypedDict", "Protocol", "Enum", "Exception", "ValueError", "str")


def rewritten(source: str) -> str:
    """Return ``source`` as mypyc needs it, every line in its place: classes may have interpreted subclasses, and code
    for type checkers alone is removed.

    Raises:
        ValueError: it contains a construct that mypyc (2.4) treats differently from Python.
    """
    lines = source.split("\n")
    tree = ast.parse(source)
    _refuse_misread(tree)
    _mark_constants(tree, lines)
    for number, line in enumerate(
        lines
    ):  # nodes refuse to have their fields set, but compiled code sets them in memory
        lines[number] = re.sub(r'^( +)_set\((\w+), "(\w+)", (.+)\)$', r"\1\2.\3 = \4", line)
    marked = False
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and any("dataclass" in ast.unparse(each) for each in node.decorator_list):
            _quote_annotations(node, lines)
        if isinstance(node, ast.ClassDef) and _may_have_subclasses(node):
            if lines[node.lineno - 2]:
                raise ValueError(f"class {node.name}: expected an empty line before it")
            lines[node.lineno - 2] = "@mypyc_attr(allow_interpreted_subclasses=True)"
            marked = True
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" and node.orelse:
            for number in range(node.lineno - 1, node.orelse[0].lineno - 1):
                lines[number] = ""
            for number in range(node.orelse[0].lineno - 1, node.end_lineno or 0):
                lines[number] = lines[number][4:]
    number = lines.index("from __future__ import annotations")
    lines[number] += "; import typing"
    if marked:
        if lines[number + 1]:
            lines[number + 1 : number + 1] = [""]
        lines[number + 1] = "if typing.TYPE_CHECKING: from mypy_extensions import mypyc_attr"
    return "\n".join(lines)


#: Calls at a module's level that make types for annotations.
_TYPES = ("TypeVar", "NewType", "ParamSpec", "NamedTuple", "TypedDict")


def _mark_constants(tree: ast.Module, lines: list[str]) -> None:
    """Mark names that a module sets once as constants: compiled code finds those at fixed addresses, and looks up
    others by name each time."""
    stored = collections.Counter(
        node.id for node in _at_module_level(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )
    changed = {name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target: ast.expr = node.targets[0]
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            target = node.target
        else:
            continue
        if not isinstance(target, ast.Name) or stored[target.id] != 1 or target.id in changed or target.id[:2] == "__":
            continue
        line, end = lines[node.lineno - 1], target.end_col_offset or 0
        if isinstance(node, ast.Assign) and _is_value(node.value):
            lines[node.lineno - 1] = f"{line[:end]}: typing.Final{line[end:]}"
        elif isinstance(node, ast.AnnAssign) and node.annotation.end_lineno == node.lineno:
            first, last = node.annotation.col_offset, node.annotation.end_col_offset or 0
            text = line[first:last]
            if not re.search(r"\b(Final|TypeAlias)\b|^tuple\[float, (?!\.\.\.)", text):
                lines[node.lineno - 1] = f"{line[:first]}typing.Final[{text}]{line[last:]}"


def _at_module_level(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the nodes of a module that are in none of its functions and classes."""
    found: list[ast.AST] = [*tree.body]
    while found:
        node = found.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            found += ast.iter_child_nodes(node)


def _is_value(value: ast.expr) -> bool:
    """Return whether an expression makes a value, not a type for annotations."""
    if isinstance(value, ast.Call):
        return ast.unparse(value.func).rpartition(".")[2] not in _TYPES
    if isinstance(value, ast.BinOp):
        return not isinstance(value.op, ast.BitOr)
    if isinstance(value, ast.Constant):
        return value.value is not None
    if isinstance(value, ast.Tuple):  # mypyc (2.4) mistakes constants that are tuples of floats for unset names
        return (
            bool(value.elts) and isinstance(value.elts[0], ast.Constant) and isinstance(value.elts[0].value, (str, int))
        )
    return isinstance(value, (ast.Attribute, ast.List, ast.Dict, ast.Set, ast.UnaryOp))


def _refuse_misread(tree: ast.Module) -> None:
    """Raise a ValueError where mypyc would build a list from an endless generator, or fail at a closure."""
    for node in ast.walk(tree):
        if isinstance(node, ast.GeneratorExp) and any(
            "itertools.count" in ast.unparse(each) for each in node.generators
        ):
            raise ValueError(f"line {node.lineno}: {ast.unparse(node)} never ends; mypyc builds a list from it")
        if isinstance(node, ast.ClassDef) and any("_pass(" in ast.unparse(each) for each in node.decorator_list):
            for inner in [each for method in node.body for each in ast.walk(method) if each is not method]:
                if isinstance(inner, (ast.Lambda, ast.FunctionDef)):
                    raise ValueError(f"line {inner.lineno}: pass {node.name}: mypyc makes no closures in its methods")


def _quote_annotations(node: ast.ClassDef, lines: list[str]) -> None:
    """Write the types of a dataclass's fields as strings, as Python stores them here: mypyc would otherwise only record
    of ``Literal["a", "b"]`` that it is a type, though a pass's options are checked against it."""
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and item.annotation.lineno == item.annotation.end_lineno:
            line, annotation = lines[item.lineno - 1], item.annotation
            first, end = annotation.col_offset, annotation.end_col_offset
            lines[item.lineno - 1] = f"{line[:first]}{line[first:end]!r}{line[end:]}"


def _refuse_miscompiled(c: str) -> None:
    """Raise a ValueError where ``c`` rejects a constant that is set: mypyc (2.4) inverts the test whether a tuple that
    begins with a float is set."""
    found = re.search(
        r"!= -113\.0 && PyErr_Occurred\(\)\)\) goto \w+;\s+PyErr_SetString\(PyExc_NameError, .*final name \\\"(\w+)", c
    )
    if found is not None:
        raise ValueError(f"{found.group(1)} is a constant that begins with a float; mypyc mistakes it for an unset one")


def _may_have_subclasses(node: ast.ClassDef) -> bool:
    """Return whether a class is native and may have interpreted subclasses: neither a node that was expanded, nor
    decorated (a dataclass, a pass, a final class), nor one of another kind of classes."""
    bases = [ast.unparse(each).partition("[")[0] for each in node.bases]
    fields = any(isinstance(item, ast.AnnAssign) and ast.unparse(item.target) == "node_fields" for item in node.body)
    is_node = fields and node.name != "Node"
    return not is_node and not node.decorator_list and not any(base in _NOT_NATIVE for base in bases)
