"""Pages of the documentation site that are made from the code: commands, Python reference and the notebook."""

from __future__ import annotations

import contextlib
import io
import os
import re
from pathlib import Path
from typing import Any

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name, text in (("commands.md", commands()), ("api.md", reference()), ("tour.md", tour())):
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links to files of the project that are not on the site become their names."""
    return re.sub(r"\[([^\]]+)\]\(\.\./([^)]+)\)", r"\1 (`\2` in the project)", markdown)


def commands() -> str:
    """What each command's ``--help`` says."""
    from geocaps import cli

    os.environ["COLUMNS"] = "110"
    pages = ["# Commands\n\nWhat `geocaps COMMAND --help` says. Every command also takes `--json`.\n"]
    for name, command in cli.COMMANDS.items():
        for words in [[name, inner] for inner in command] if isinstance(command, dict) else [[name]]:
            out = io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
                cli.run([*words, "--help"])
            plain = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()).strip()
            pages.append(f"## geocaps {' '.join(words)}\n\n```text\n{plain}\n```\n")
    return "\n".join(pages)


def reference() -> str:
    """Every public name, from its docstring."""
    import geocaps

    pages = ["# Python\n\nAll public names of `geocaps`, from their docstrings.\n"]
    pages += [f"::: geocaps.{module}.{name}\n" for module, names in geocaps._WHERE.items() for name in sorted(names)]
    return "\n".join([*pages, "::: geocaps.datasets\n"])


def tour() -> str:
    """The notebook as it is stored, with what its cells show."""
    notebook = nbformat.read(ROOT / "examples" / "tour.ipynb", as_version=4)
    pages = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            pages.append(cell.source)
            continue
        pages.append(f"```python\n{cell.source}\n```")
        for output in cell.outputs:
            data = output.get("data", {})
            if "text/html" in data:
                pages.append(f'<div style="overflow-x:auto">{data["text/html"]}</div>')
            elif "image/png" in data:
                pages.append(f'<img alt="" src="data:image/png;base64,{data["image/png"].strip()}">')
            else:
                pages.append(f"```text\n{output.get('text') or data.get('text/plain', '')}\n```")
    return "\n\n".join(pages)
