"""The contract is worth what it catches: one break for each guarantee, planted into the shipped stores."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import frozen
from msgspec.structs import replace

from seriatim.commits import Commit
from seriatim.errors import StoreError
from seriatim.storage import (
    blobs,
    encoding,
    memory,
    plain,
    reading,
    schema,
    sqlite,
    sqlite_growth,
    sqlite_reader,
    sqlite_upkeep,
)
from seriatim.storage.staging import StagedCommit, Staging
from seriatim.testing import store_contract as contract
from tests.planted import planted

from .worlds import MemoryWorld, SqliteWorld

Change = tuple[Any, str, str]
"""A shipped function, a text of its source, and what stands there instead."""

Plant = Callable[[pytest.MonkeyPatch], None]


@frozen
class Bug:
    """What ``planted`` plants."""

    name: str
    function: Any
    changes: tuple[tuple[str, str], ...]


@frozen
class Break:
    """What is wrong, and whose claims must notice. ``both``: in what the stores share; then what each has alone."""

    name: str
    guarantee: type
    both: tuple[Change, ...] = ()
    memory: tuple[Change, ...] = ()
    sqlite: tuple[Change, ...] = ()
    plant: Plant = lambda _: None
    plant_sqlite: Plant = lambda _: None


def _in_triggers(old: str, new: str) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        changed = tuple((name, when, body.replace(old, new)) for name, when, body in schema._TRIGGERS)
        assert changed != schema._TRIGGERS
        patch.setattr(schema, "_TRIGGERS", changed)

    return plant


def _in_query(name: str, old: str, new: str) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        text = getattr(sqlite_reader, name)
        assert old in text
        patch.setattr(sqlite_reader, name, text.replace(old, new))

    return plant


def _keep_part(patch: pytest.MonkeyPatch) -> None:
    """The first part of a commit that is refused for a later one is written all the same."""
    check = Staging._check

    def leaky(self: Staging, commit: Commit) -> StagedCommit:
        try:
            return check(self, commit)
        except StoreError:
            first = replace(commit, id=commit.id + "/1", parts=commit.parts[:1], bindings=(), unique=())
            with contextlib.suppress(StoreError):
                self.staged.append(check(self, first))
            raise

    patch.setattr(Staging, "_check", leaky)


BREAKS: Final = (
    Break(
        "heads are not checked",
        contract.LogClaims,
        both=(
            (Staging._place, "if state.head != part.expected_head:", "if False:"),
            (plain._states, "or part.expected_head != state.head", "or False"),
        ),
    ),
    Break(
        "commit ids are not looked up",
        contract.OnceClaims,
        both=((Staging.add, "if commit.id in self._ids_found:", "if False:"),),
        sqlite=((Staging.correct, "if commit.id in ids:", "if False:"),),
    ),
    Break(
        "keys are not unique",
        contract.KeyClaims,
        both=((Staging._try, "if key in keys or key in found_before:", "if False:"),),
        plant_sqlite=_in_triggers("INSERT INTO keys", "INSERT OR REPLACE INTO keys"),
    ),
    Break(
        "keys are forgotten inside their window",
        contract.WindowClaims,
        memory=((memory.MemoryDisk.prune, "time <= now - window_ms", "time <= now"),),
        sqlite=((sqlite_upkeep.prune, "[now - window_ms]", "[now]"),),
    ),
    Break(
        "fences are not looked at",
        contract.OwnerClaims,
        both=(
            (Staging._check, "if fence is not None and commit.incarnation < fence:", "if False:"),
            (plain._states, "commit.incarnation < fences.get(lane, commit.incarnation)", "False"),
        ),
    ),
    Break(
        "the epoch is not looked at",
        contract.OwnerClaims,
        memory=((memory.MemoryStore._ready, "if self._epoch != self.disk.epoch:", "if False:"),),
        plant_sqlite=_in_triggers("WHERE NEW.epoch IS NOT (SELECT epoch FROM meta)", "WHERE 0"),
    ),
    Break("a refused commit leaves its first part", contract.GroupClaims, plant=_keep_part),
    Break(
        "bindings are not checked",
        contract.BindingClaims,
        both=(
            (Staging._check_writer, "if lane != writer and", "if False and"),
            (plain._states, "or state.lane != (None if log == lane else lane)", "or False"),
        ),
    ),
    Break(
        "data that JSON changes is taken",
        contract.LosslessClaims,
        both=(
            (encoding.encode_events, "if type(data) is not dict or not is_plain(data):", "if False:"),
            (encoding.encode_plain, "else is_rarer(kind, item)", "else True"),
        ),
    ),
    Break(
        "checksums are not compared",
        contract.DamageClaims,
        memory=(
            (memory.MemoryReader.read, "if crc != part.crc:", "if False:"),
            (memory.MemoryReader.read, "if crc != final:", "if False:"),
        ),
        sqlite=(
            (reading.Reading._plain, "or crc != crc_there", ""),
            (reading.Reading._part, "if self.crc != crc:", "if False:"),
        ),
    ),
    Break(
        "a page leaves its first log out",
        contract.ReadingClaims,
        memory=((memory.MemoryReader.logs, "[: max(limit, 0)]", "[1 : max(limit, 0) + 1]"),),
        plant_sqlite=_in_query("_PAGE", "LIMIT ?", "LIMIT ? OFFSET 1"),
    ),
    Break(
        "lanes with owed replies are missing from open work",
        contract.IndexClaims,
        memory=((memory.MemoryReader.open_work, "if hot.is_open", "if hot.is_open and not hot.owed"),),
        plant_sqlite=_in_query("_OPEN_WORK", "ORDER BY", "AND h.owed = 0 ORDER BY"),
    ),
    Break(
        "doubt is told as a refusal",
        contract.OutcomeClaims,
        memory=((memory.MemoryStore._write, "finish(str(error))", "finish(StoreUnhealthyError('no'))"),),
        sqlite=((sqlite.SqliteStore._failed_write, "return error_name(error)", "return StoreUnhealthyError('no')"),),
    ),
    Break(
        "erasing keeps the content",
        contract.EraseClaims,
        memory=(
            (
                memory.MemoryDisk.remove,
                "number = self.logs.pop(log).state.number",
                "gone = self.logs.pop(log); self.gone = gone; number = gone.state.number",
            ),
        ),
        sqlite=((sqlite_upkeep.remove_log, "DELETE FROM events WHERE at", "DELETE FROM events WHERE 0 AND at"),),
    ),
    Break(
        "blobs are not verified",
        contract.BlobClaims,
        memory=((memory.MemoryReader.blob, "if hash_of(data) != hash:", "if False:"),),
        sqlite=((blobs.BlobFolder.read, "if hashlib.sha256(data).hexdigest() != name:", "if False:"),),
    ),
    Break(
        "a compaction removes all at once",
        contract.GrowthClaims,
        memory=((memory.MemoryStore.compact, "del log.parts[: min(hidden, parts_max)]", "del log.parts[:hidden]"),),
        sqlite=(
            (sqlite_growth._compact, "base, number, parts_max + 1]", "base, number, 1000]"),
            (sqlite_growth._compact, "hidden[:parts_max]", "hidden"),
        ),
    ),
    Break(
        "a closed store takes commits",
        contract.LifeClaims,
        memory=((memory.MemoryStore._ready, "if self._closed:", "if False:"),),
        sqlite=((sqlite.SqliteStore._ready, "if self._closed:", "if False:"),),
    ),
)

STORES: Final = ("memory", "sqlite")


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("broken", BREAKS, ids=lambda broken: broken.name)
def test_each_break_is_caught_by_its_own_guarantee(broken: Break, store: str, tmp_path: Path) -> None:
    """With the break planted a claim of its guarantee fails; that they hold without it is the contract's own test."""
    with ExitStack() as stack:
        changes: dict[Any, list[tuple[str, str]]] = {}
        for function, old, new in (*broken.both, *getattr(broken, store)):
            changes.setdefault(function, []).append((old, new))
        for function, texts in changes.items():
            stack.enter_context(planted(Bug(broken.name, function, tuple(texts))))
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        broken.plant(patch)
        if store == "sqlite":
            broken.plant_sqlite(patch)
        assert next(failures(broken.guarantee, store, tmp_path), None) is not None


def failures(guarantee: type, store: str, folder: Path) -> Iterator[str]:
    """Claims that don't hold now, each tried on a world of its own."""
    for number, name in enumerate(claims(guarantee)):
        home = folder / str(number)
        home.mkdir()
        world: MemoryWorld | SqliteWorld = MemoryWorld() if store == "memory" else SqliteWorld(home)
        try:
            getattr(guarantee(), name)(world)
        except (Exception, pytest.fail.Exception):  # noqa: BLE001  (whatever a broken store makes of a claim)
            yield name
        finally:
            if isinstance(world, SqliteWorld):
                world.close()


def claims(guarantee: type) -> list[str]:
    """The names of its cases."""
    return [name for name in vars(guarantee) if name.startswith("test_")]


def test_every_guarantee_has_a_break() -> None:
    """Each class of claims that the contract is made of is tried by one break at least, and there are ten or more."""
    parts = {part for part in contract.StoreContract.__mro__ if claims(part)}
    assert {broken.guarantee for broken in BREAKS} == parts
    assert len(BREAKS) >= 10


def test_the_contract_has_enough_distinct_claims() -> None:
    """At least ninety cases, no two with the same words, none of them a parameter of another."""
    told = [getattr(part, name).__doc__ for part in contract.StoreContract.__mro__ for name in claims(part)]
    assert len(told) >= 90
    assert len(set(told)) == len(told)
