"""What the whole line is run on."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def tiny(squad_file: Callable[..., Path], encoder_folder: Path) -> dict[str, Any]:
    """Settings of an experiment that takes a second: the same eight questions to learn from and to answer."""
    data = str(squad_file())
    return {
        "name": "tiny",
        "data": {"train": data, "dev": data},
        "encoder": str(encoder_folder),
        "windows": {"max_length": 24, "stride": 4},
        "device": "cpu",
    }
