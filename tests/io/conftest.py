"""The files that the tests of `geocaps.io` read."""

from pathlib import Path

import pytest
from io_files import BOXES, CLOUDS, make_box, make_points, write_boxes, write_clouds


@pytest.fixture(scope="session")
def io_folder(tmp_path_factory) -> Path:
    """A folder with every file of CLOUDS (the same points) and of BOXES (the same box)."""
    folder = tmp_path_factory.mktemp("io")
    write_clouds(folder, make_points())
    write_boxes(folder, *make_box())
    return folder


def pytest_generate_tests(metafunc):
    if "cloud_name" in metafunc.fixturenames:
        metafunc.parametrize("cloud_name", CLOUDS)
    if "box_name" in metafunc.fixturenames:
        metafunc.parametrize("box_name", BOXES)
    if "file_name" in metafunc.fixturenames:
        metafunc.parametrize("file_name", CLOUDS + BOXES)
