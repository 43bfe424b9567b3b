"""Runs examples/tour.ipynb and keeps what it shows: python scripts/run_notebook.py (with the extras docs and index)."""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbclient import NotebookClient

TOUR = Path(__file__).parents[1] / "examples" / "tour.ipynb"


def main() -> None:
    notebook = nbformat.read(TOUR, as_version=4)
    NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
    for cell in notebook.cells:
        cell.metadata = {}  # when each cell ran: another time, another file
    nbformat.write(notebook, TOUR)
    print(f"{TOUR}: {TOUR.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
