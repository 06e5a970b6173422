"""Real server programs that tests talk to: found, or skipped with the reason, or in CI a failure."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

PACKAGES = {"ngircd": "ngircd"}
"""Program -> Debian package."""


def server_program(name: str) -> Path:
    """Path of an installed server program; without it the calling test is skipped.

    With ``SERIATIM_REQUIRE_SERVERS=1`` the test fails instead, so that CI can't pass by skipping.
    """
    path = os.environ.get("PATH", os.defpath)
    found = shutil.which(name, path=f"{path}:/usr/sbin:/sbin")  # Debian keeps servers off a user's path
    if found is not None:
        return Path(found)
    reason = f"{name} isn't installed (Debian package {PACKAGES[name]})"
    if os.environ.get("SERIATIM_REQUIRE_SERVERS") == "1":
        pytest.fail(f"{reason}, and SERIATIM_REQUIRE_SERVERS=1")
    pytest.skip(reason)
