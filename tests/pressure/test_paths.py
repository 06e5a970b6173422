"""Every way out of memory, and what must be the same on each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from seriatim import SessionStore, Turn
from seriatim.actors.warden import IDLE_TICKS
from seriatim.errors import HomeBusyError
from tests.gateway.bots import bot, run, until
from tests.pressure.machine import ScriptedMachine
from tests.pressure.worlds import World, world


async def idle(w: World) -> None:
    """The session isn't used for as long as it may be."""

    def rests() -> bool:
        w.clock.advance(1_000)
        return not w.live

    await until(rests)


async def crowd(w: World) -> None:
    """Another session is used, and there is room for one."""
    await w.it.ask("hi", "b")
    await until(lambda: w.live == {"b"})


async def press(w: World) -> None:
    """Memory is short."""
    w.machine.used = 300
    await w.look()
    assert w.live == set()


async def renew(w: World) -> None:
    """The conversation is ended by a command, and the next one begun."""
    await w.it.ask("/new", "a")
    await w.it.ask("hi", "a")


async def stop(w: World) -> None:
    """The gateway stops; to answer with another model, say, since its configuration is read at the start."""
    await w.it.gateway.stop()


@pytest.mark.parametrize(
    ("leave", "bounds", "last"),
    [
        (idle, {"idle_ttl_secs": IDLE_TICKS}, "release"),
        (crowd, {"max_size": 1}, "release"),
        (press, {}, "release"),
        (renew, {}, "cleanup"),
        (stop, {}, "cleanup"),
    ],
)
def test_each_way_out_of_memory_has_its_hooks(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    leave: Callable[[World], Awaitable[None]],
    bounds: dict[str, Any],
    last: str,
) -> None:
    """B130: by idleness, by number, by memory pressure, by /new, by a stop (also for another model): the agent commits
    what it holds, then it is released, or at a boundary cleaned up; each once, and never again at the end.
    """

    async def main() -> None:
        async with world(tmp_path, monkeypatch, ScriptedMachine(), **bounds) as w:
            await w.fill("a")
            session = w.served[0]
            await leave(w)
            await until(lambda: len([hook for hook, its in w.hooks if its == session]) == 2)
        assert [hook for hook, its in w.hooks if its == session] == ["commit", last]

    run(main())


def test_a_warm_conversation_sees_what_another_writer_adds(tmp_path: Path) -> None:
    """B131: between two turns of a warm lane a message is appended through the gateway's store: the next turn has it,
    and nothing of it is written over. A store of its own on the same home is refused while the gateway has it, and what
    it adds afterwards is seen by the next life.
    """
    heard: list[list[str]] = []
    sessions: list[str] = []

    async def answer(turn: Turn) -> str:
        heard.append([said.text for said in turn.history])
        sessions.append(turn.session)
        return f"re {turn.text}"

    async def ask(text: str) -> None:
        async with bot(answer, tmp_path) as it:
            await it.ask(text)
            note = {"role": "user", "content": f"after {text}"}
            assert await it.gateway.sessions.aio.append_to_transcript(sessions[-1], note)
            with pytest.raises(HomeBusyError):
                SessionStore(tmp_path)
            await it.ask("again")

    run(ask("one"))
    with SessionStore(tmp_path) as alone:
        alone.append_to_transcript(sessions[0], {"role": "assistant", "content": "by hand"})
    run(ask("two"))

    told = ["one", "re one", "after one", "again", "re again", "by hand", "two", "re two", "after two"]
    assert heard == [told[:count] for count in (0, 3, 6, 9)]
    assert len(set(sessions)) == 1
