"""A path's file is told from any other."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import pytest

from seriatim.storage import places
from seriatim.storage.places import place_of


@pytest.mark.parametrize("look", [place_of, places._by_stat])
def test_a_replaced_file_is_another(tmp_path: Path, look: places.Look) -> None:
    """The same path, removed and made again beside the old one, leads elsewhere; where nothing is, nowhere."""
    path = tmp_path / "ä b"
    assert look(str(path)) is None
    path.write_text("a")
    first = look(str(path))
    assert first == look(str(path)) is not None
    kept = tmp_path / "kept"
    path.rename(kept)
    path.write_text("a")
    assert look(str(path)) != first == look(str(kept))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere os.stat has to do")
def test_a_look_keeps_the_lock(tmp_path: Path) -> None:
    """Beside a thread that computes, looks don't wait for the interpreter's switch interval each time."""
    stop = threading.Event()

    def burn() -> None:
        while not stop.is_set():
            pass

    thread = threading.Thread(target=burn, daemon=True)
    thread.start()
    before = time.thread_time(), time.perf_counter()
    for _ in range(200):
        place_of(str(tmp_path))
    waited = (time.perf_counter() - before[1]) - (time.thread_time() - before[0])
    stop.set()
    thread.join()
    assert waited < 200 * sys.getswitchinterval() / 2
