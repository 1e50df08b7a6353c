"""All operators. Each module of this package is imported, so adding an operator touches one file."""

from __future__ import annotations

import importlib
import pkgutil

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    importlib.import_module(_module.name)
