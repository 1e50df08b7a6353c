"""Provide the build backend of Tilewright (PEP 517): that of setuptools, and the accelerated wheel on request.

``TILEWRIGHT_MYPYC=1 pip install .`` compiles the typed core with mypyc (:mod:`accelerated`). Without the variable
this is setuptools, and needs nothing else. Before either runs, the description for a package index is written from
README.md (:mod:`readme_links`).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from readme_links import write_description
from setuptools import build_meta

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

VARIABLE = "TILEWRIGHT_MYPYC"

#: Older versions support other forms of classes, and generate other C from them.
REQUIRED = "mypy[mypyc]>=2.4"


def is_accelerated() -> bool:
    """Return whether the environment requests the accelerated wheel.

    Raises:
        ValueError: the variable has another value than 0 and 1.
    """
    value = os.environ.get(VARIABLE, "")
    if value not in ("", "0", "1"):
        raise ValueError(f"{VARIABLE}={value}: expected 1 (compile the typed core) or 0")
    return value == "1"


def _describe() -> None:
    write_description(Path.cwd(), Path.cwd())  # frontends call the hooks in the folder of the project


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    _describe()
    required = build_meta.get_requires_for_build_wheel(config_settings)
    return [*required, REQUIRED] if is_accelerated() else required


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    _describe()
    return list(build_meta.get_requires_for_build_editable(config_settings))


def get_requires_for_build_sdist(config_settings: Any = None) -> list[str]:
    _describe()
    return list(build_meta.get_requires_for_build_sdist(config_settings))


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Any = None) -> str:
    _describe()
    return str(build_meta.prepare_metadata_for_build_wheel(metadata_directory, config_settings))


def prepare_metadata_for_build_editable(metadata_directory: str, config_settings: Any = None) -> str:
    _describe()
    return str(build_meta.prepare_metadata_for_build_editable(metadata_directory, config_settings))


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    _describe()
    return str(build_meta.build_sdist(sdist_directory, config_settings))


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    _describe()
    if not is_accelerated():
        return str(build_meta.build_wheel(wheel_directory, config_settings, metadata_directory))
    from accelerated import build

    return build(wheel_directory, config_settings)


def build_editable(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    if is_accelerated():
        raise ValueError(f"{VARIABLE}=1: an editable install runs the source as it is; install without -e")
    _describe()
    return str(build_meta.build_editable(wheel_directory, config_settings, metadata_directory))
