"""The notebook runs from its first cell to its last, and shows what it says."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

TOUR = Path(__file__).parents[1] / "examples" / "tour.ipynb"


@pytest.mark.slow
def test_the_tour_runs_and_shows_its_pictures(tmp_path):
    notebook = nbformat.read(TOUR, as_version=4)
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    pictures = [one for one in shown if "image/png" in str(one.get("data", ""))]
    assert len(pictures) == 7  # encode, parts, align, search, two transfers, track
    text = "".join(one.get("text", "") for one in shown)
    moved = float(re.search(r"points to ([\d.e-]+)", text)[1])
    assert moved < 1e-2
    (hits,) = [one["data"]["text/plain"] for one in shown if " hits for " in str(one.get("data", ""))]
    assert "plasticChair" in hits.splitlines()[2]
    assert list(tmp_path.iterdir()) == []


def test_the_stored_tour_has_its_pictures():
    """The site and GitHub show the notebook as it is stored."""
    notebook = nbformat.read(TOUR, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code)
    assert not any(output.output_type == "error" for cell in code for output in cell.outputs)
    assert sum("image/png" in str(cell.outputs) for cell in code) >= 6
