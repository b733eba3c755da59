"""Fixtures every test may use."""

from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)  # tiny models: threads cost more than they give


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The design's data folder beside the checkout; tests on it are skipped where it is absent."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the shared data folder is not beside this checkout")
    return folder
