"""Text that JSON or people can't carry, everywhere that text comes in."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from seriatim import Gateway, MessageEvent, Platform, SessionSource, Turn
from seriatim.errors import InvalidInputError
from seriatim.storage.audit import audit
from seriatim.storage.contract import Store
from seriatim.storage.memory import MemoryDisk, MemoryStore
from seriatim.storage.sqlite import SqliteStore
from seriatim.testing.fake_platform import FakePlatform

LINE = "a line without end " * 55_000
ODD = {
    "half a pair": "\ud83d and on",
    "NUL": "\x00 and on",
    "U+FFFF": "\uffff and on",
    "not UTF-8": b"\xff\xfe and on".decode("utf-8", "surrogateescape"),
    "1 MB": LINE,
}


@pytest.mark.parametrize("backend", ["sqlite", "memory"])
@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_odd_text_anywhere(tmp_path: Path, backend: str, odd: str) -> None:
    """In content, names, a tool's arguments and output, and replies: kept, or mended and flagged (B102)."""
    said = odd[:60_000]
    platform = FakePlatform()

    def look(**given: Any) -> Any:
        return {"odd": odd, odd[:100]: [odd, given]}

    async def answer(turn: Turn) -> str:
        if turn.text == "after it":
            return "fine"
        found = await turn.step(said).call("look", {"at": turn.text}, look)
        return f"{said} {str(found)[:1000]}"

    disk = MemoryDisk()
    store: Store = SqliteStore(tmp_path / "state.db") if backend == "sqlite" else MemoryStore(disk)

    async def scenario() -> None:
        async with Gateway(answer, home=tmp_path / "home", store=store, adapters=[platform]) as gateway:
            for number, text in enumerate([said, "after it"]):
                source = SessionSource(Platform("fake"), "1", user_id="7", user_name=odd, chat_name=odd, chat_topic=odd)
                receipt = await gateway.accept(MessageEvent(text, source, account="fake", message_id=f"{number}"))
                end = await asyncio.wait_for(receipt.answered(), 60)
                assert (end.outcome, end.reason) == ("answered", "completed")
            balance = gateway.balance()
            assert balance["answered"] == balance["accepted"] == 2
            reader = store.reader()
            try:
                assert audit(reader).holds
                (lane,) = reader.logs("lane:")
                accepted = [event.data for event in reader.read(lane) if event.type == "inbox/accepted"]
                (session,) = reader.logs("session:")
                results = [event.data for event in reader.read(session) if event.type == "tool/result"]
            finally:
                reader.close()
            mended = "\ud800" <= odd[0] <= "\udfff"
            assert accepted[0]["text"].endswith(said[2:])
            assert ("\ufffd" in accepted[0]["text"]) is mended
            assert accepted[0].get("mended", False) is (mended or odd == LINE or "\0" in odd)
            assert len(accepted[0]["source"]["user_name"]) <= 4096
            assert len(results) == 1

    asyncio.run(scenario())
    for text in platform.texts():
        text.encode()


def test_ids_are_never_mended() -> None:
    """An id that can't be kept is refused by name: two people must not become one."""
    for odd in ("\ud83d", "\x00"):
        for name in ("chat_id", "user_id", "thread_id", "guild_id", "user_id_alt"):
            values: dict[str, Any] = {"chat_id": "1", name: odd}
            with pytest.raises(InvalidInputError, match=name):
                SessionSource(Platform("fake"), **values)
    with pytest.raises(InvalidInputError, match="text"):
        MessageEvent(LINE, SessionSource(Platform("fake"), "1"))
