"""The operations page against a real server: what it says is what people see."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.operations import told_page, transcript


@pytest.mark.server
@pytest.mark.slow
def test_the_page_tells_what_people_see(tmp_path: Path) -> None:
    """Stopped with a short drain, killed, frozen beside a second start, cut off and back: line by line as the page has
    it (``python -m tests.e2e.operations`` writes it anew).
    """
    assert transcript(tmp_path) == told_page()
