"""Configure the pages of ``make docs``: Markdown, notebooks, and the reference from docstrings.

Sphinx reads the folder that ``build_support/docs_pages.py`` makes of docs/, README.md and CHANGELOG.md. Nothing is
executed but imports: a test runs the notebooks and compares their outputs, and another one the code of the pages.
"""

from __future__ import annotations

from typing import Any

project = "Tilewright"
html_title = "Tilewright"

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_copy_source = False
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["pages.css"]
# Untitled blocks are outputs of programs, or commands.
highlight_language = "text"

myst_heading_anchors = 4
nb_execution_mode = "off"

# What each node of an IR has, and only visitors use.
autodoc_default_options = {"members": True, "exclude-members": "node_fields, parts, rebuild"}
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
maximum_signature_line_length = 100
napoleon_numpy_docstring = False
napoleon_custom_sections = [("Class attributes", "params_style")]
napoleon_use_ivar = True  # the fields of a class are its members already


def setup(app: Any) -> None:
    """Show defaults that are made anew for each object, such as empty dictionaries, as dots."""
    app.connect("autodoc-process-signature", _without_markers)


def _without_markers(*found: Any) -> tuple[str | None, str | None]:
    signature, annotation = found[-2:]
    return signature and signature.replace("<dataclasses._MISSING_TYPE object>", "..."), annotation
