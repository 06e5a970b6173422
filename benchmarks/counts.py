"""What a turn costs, counted: gated commits, SQL statements, syncs of the database, bytes. No clock is read.

Syncs are counted by a library of a few lines that is compiled here and preloaded into a process of its own: it stands
before libc's fsync and fdatasync and counts those on the database and its write-ahead log.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.load import VARIANTS, Variant, product
from seriatim.commits import Commit, Outcome
from seriatim.storage.sqlite import SqliteStore

LAZY_TYPES: Final = frozenset({"delivery/settled", "delivery/failed"})
"""A commit of these alone is nobody's gate: the lazy window has closed with no other commit to ride with."""

SHIM: Final = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
static atomic_long seen;
long bench_syncs(void) { return seen; }
static int count(int fd, const char *name) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, path, sizeof path - 1);
  if (n > 0) { path[n] = 0; if (strstr(path, "/state.db")) seen++; }
  return ((int (*)(int))dlsym(RTLD_NEXT, name))(fd);
}
int fsync(int fd) { return count(fd, "fsync"); }
int fdatasync(int fd) { return count(fd, "fdatasync"); }
"""


class CountedStore(SqliteStore):
    """The store, with SQLite's own trace on its connection.

    ``statements``: those that the store began itself, each one SQL step. ``inner``: those that its trigger began
    within such a step. SQLite traces both, and Python shows the outer text, values filled in, for each: so the same
    text again is an inner statement. (No two statements of the write path are equal: each has its commit ids.)
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.statements = self.inner = self.gated = self.lazy = 0
        self._last = ""

    def trace(self) -> None:
        """Count statements from now on. Slow: SQLite makes the whole text again for each inner statement."""
        connection = self._connection
        assert connection is not None
        connection.set_trace_callback(self._trace)

    def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        """Count, then commit."""
        for commit in commits:
            if all(event.type in LAZY_TYPES for part in commit.parts for event in part.events):
                self.lazy += 1
            else:
                self.gated += 1
        return super().commit(commits)

    def _trace(self, sql: str) -> None:
        if sql.startswith("PRAGMA"):
            return  # checkpoints: four a second at the most, whatever the load
        if sql == self._last:
            self.inner += 1
        else:
            self.statements += 1
            self._last = sql


async def count(folder: Path, variant: Variant, lanes: int, each: int) -> dict[str, Any]:
    """Figures per turn of ``lanes`` lanes that hold ``each`` turns; the first turn of each lane is not counted."""
    path = folder / "state.db"
    made: list[CountedStore] = []

    def open_store(path: Path) -> SqliteStore:
        made.append(CountedStore(path))
        return made[-1]

    async with product(path, variant, open_store) as load:
        await load.turns(lanes, 1)
    size = path.stat().st_size
    async with product(path, variant, open_store) as load:
        await load.turns(lanes, 1)  # their logs are read and in the store's cache from here on
        store = made[-1]
        store.trace()
        before = (store.statements, store.inner, store.gated, store.lazy, syncs())
        await load.turns(lanes, each)
        after = (store.statements, store.inner, store.gated, store.lazy, syncs())
    statements, inner, gated, lazy, synced = (b - a for a, b in zip(before, after, strict=True))
    turns = lanes * each
    return {
        "gated_commits": gated / turns,
        "lazy_commits": lazy / turns,
        "statements": statements / turns,
        "trigger_statements": inner / turns,
        "fsyncs": synced / turns if before[-1] >= 0 else None,
        "bytes": (path.stat().st_size - size) / (turns + lanes),  # closed: the WAL has gone into the file
    }


def syncs() -> int:
    """How often this process has synced the database so far; -1 without the preloaded library."""
    counter = getattr(ctypes.CDLL(None), "bench_syncs", None)
    if counter is None:
        return -1
    counter.restype = ctypes.c_long
    return int(counter())


def count_all(variants: Sequence[Variant], lanes: Sequence[int], turns: int) -> dict[str, dict[str, Any]]:
    """``count`` for each variant and number of lanes, in a process with the preloaded library.

    Without a C compiler the figures of ``fsyncs`` are None.
    """
    with tempfile.TemporaryDirectory(prefix="seriatim-counts-") as folder:
        library = build_shim(Path(folder))
        preload = {} if library is None else {"LD_PRELOAD": str(library)}
        names = [variant.name for variant in variants]
        command = [sys.executable, "-m", "benchmarks.counts", folder, json.dumps(names), json.dumps(lanes), str(turns)]
        done = subprocess.run(command, env=os.environ | preload, stdout=subprocess.PIPE, check=True)
    result: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return result


def build_shim(folder: Path) -> Path | None:
    """Compile the counting library; None, with a word on stderr, where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        print("no C compiler: fsyncs can't be counted", file=sys.stderr)
        return None
    source, library = folder / "syncs.c", folder / "syncs.so"
    source.write_text(SHIM)
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library


def main() -> None:
    """Count as the arguments say (see ``count_all``) and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("variants", type=json.loads)
    parser.add_argument("lanes", type=json.loads)
    parser.add_argument("turns", type=int)
    options = parser.parse_args()
    result: dict[str, dict[str, Any]] = {}
    for variant in VARIANTS:
        if variant.name not in options.variants:
            continue
        found = result[variant.name] = {}
        for lanes in options.lanes:
            home = options.folder / f"{variant.name}-{lanes}"
            home.mkdir()
            found[str(lanes)] = asyncio.run(count(home, variant, lanes, max(1, options.turns // lanes)))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
