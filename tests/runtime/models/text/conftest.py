"""Files of small text encoders that these tests share and none changes."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.encoder_files import write_encoders


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encoders")
    write_encoders(folder)
    return folder
