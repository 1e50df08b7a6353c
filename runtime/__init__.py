"""Build models, call them, store them, and inspect them.

A build runs through ``build``, ``compile_model``, ``lower_model``, ``kernel_supply``, ``background_compile``,
``compile_functions``, ``generated_code``, ``built_model`` and ``executable``, in this order; a call through
``executable``, ``signature``, ``steps`` and ``runners``. docs/architecture.md describes each of them. The package
``observe`` profiles, checks, compares and reports; builds and calls do not need it.

Memory is planned at build time (``passes/lower/plan_memory.py``). Generated code divides parallel loops among threads
(``codegen/llvm/team_ir.py``), which ``codegen/threads.py`` starts and ``tensorir/cores.py`` counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.tensorir.lazy import lazy_exports

if TYPE_CHECKING:
    from tilewright.runtime.build import bind_params, build
    from tilewright.runtime.executable import Executable
    from tilewright.runtime.observe.levels.explain import explain_passes
    from tilewright.runtime.observe.levels.opt_report import opt_report
    from tilewright.runtime.observe.report.write import report
    from tilewright.runtime.signature import Signature

__all__ = ["Executable", "Signature", "bind_params", "build", "explain_passes", "opt_report", "report"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__)
