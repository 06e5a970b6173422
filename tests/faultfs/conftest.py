"""The disk, for every test here."""

from tests.faultfs.disk import disk

__all__ = ["disk"]
