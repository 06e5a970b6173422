"""The pure rules stay pure; the layers above them are import-linter's part (``make check``)."""

from __future__ import annotations

from tests.house.source import COMPOSITION_ROOT, PACKAGE, pure, wings

WORLD = frozenset({
    "asyncio", "concurrent", "fcntl", "httpx", "io", "multiprocessing", "os", "pathlib", "psutil", "pykka", "random",
    "secrets", "select", "shutil", "signal", "socket", "sqlite3", "sqlite_utils", "ssl", "subprocess", "tempfile",
    "threading", "time", "uuid", "cgroupspy",
})  # fmt: skip
"""Threads, files, sockets, clocks and chance: the pure rules get what they need of these handed in."""

CLOCKS = frozenset({("clock", "time")})
"""The one pure module that may touch one: the port keeps the honest clock beside it."""


def test_pure_rules_import_no_layer_above() -> None:
    """A module directly in the package imports no wing and nothing of the composition root."""
    above = {f"{PACKAGE}.{name}" for name in {*wings(), "testing", *COMPOSITION_ROOT}}
    found = [
        f"{seen.place} imports {name}"
        for module in pure()
        for seen in module.imports()
        for name in sorted(above)
        if seen.module == name or seen.module.startswith(f"{name}.")
    ]

    assert found == []


def test_pure_rules_touch_no_thread_file_clock_or_chance() -> None:
    """A module directly in the package imports nothing that reaches the world, and opens or prints nothing."""
    found = [
        f"{seen.place} imports {seen.module}"
        for module in pure()
        for seen in module.imports()
        if (top := seen.module.partition(".")[0]) in WORLD and (module.path.stem, top) not in CLOCKS
    ]

    assert found == []
