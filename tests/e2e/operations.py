"""What people on a real ngIRCd see of a gateway that is stopped, killed, frozen and cut off: a transcript.

``python -m tests.e2e.operations`` writes it into docs/operations.md, between two marks; a test compares.

Alice talks to the bot in a room; the transcript holds what she says, what the server shows her of the bot, in order,
and between them what the operator does, each act only after the line before it was seen. What differs from run to run
(hosts, process ids, folders) is written as a word in angle brackets.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from unittest import mock

from tests.e2e.irc_bot import BOT, ROOM, WAIT_S_MAX, IrcBot
from tests.e2e.slow_agent import GO_VARIABLE
from tests.irc_client import IrcClient
from tests.kill.process import ROOT, Armed, Child
from tests.servers import Server, ngircd_server

PAGE = ROOT / "docs" / "operations.md"
BEGIN = "<!-- made by `python -m tests.e2e.operations`: from here -->"
END = "<!-- to here -->"
ALICE = "alice"

SETTINGS = "[stop]\ndrain_s = 0.5"
ACCOUNT = "reconnect_min_ms = 1500\nreconnect_max_ms = 1500"


class Story:
    """One home, one server, one person; ``lines`` is the transcript so far."""

    def __init__(self, folder: Path, server: Server) -> None:
        self.lines: list[str] = []
        self.bot = IrcBot(folder, server, "tests.e2e.slow_agent:make", settings=SETTINGS, account=ACCOUNT)
        self._go = folder / "go"
        os.environ[GO_VARIABLE] = str(self._go)

    # --- what is told ----------------------------------------------------------------------------------

    def scene(self, title: str) -> None:
        """A new scene begins."""
        self.lines += ["", f"### {title}", ""]

    def act(self, text: str) -> None:
        """The operator, or the world, does something."""
        self.lines.append(f"    -- {text}")

    def say(self, alice: IrcClient, text: str) -> None:
        """Alice says something to the room."""
        alice.say(ROOM, text)
        self.lines.append(f"    <{ALICE}> {text}")

    async def sees(self, alice: IrcClient) -> str:
        """The next thing that alice sees of the bot."""
        line = await alice.wait_for(lambda line: line.startswith(f":{BOT}!"))
        words = line.split(" ", 3)
        match words[1]:
            case "PRIVMSG":
                told = f"<{BOT}> {words[3].removeprefix(':')}"
            case "JOIN":
                told = f"* {BOT} joins {ROOM}"
            case "QUIT":
                reason = " ".join(words[2:]).removeprefix(":")
                # What we say stands in quotes; the server has several words for a connection that is gone.
                told = f"* {BOT} quits ({reason})" if reason.startswith('"') else f"* {BOT}'s connection is gone"
            case other:
                told = f"* {BOT} {other}"
        self.lines.append(f"    {told}")
        return told

    async def sees_all(self, alice: IrcClient, *told: str) -> None:
        """The next things that alice sees of the bot are these."""
        for expected in told:
            async with asyncio.timeout(WAIT_S_MAX):
                assert await self.sees(alice) == expected, self.bot.log.read_text()

    # --- what is done ----------------------------------------------------------------------------------

    @asynccontextmanager
    async def serving(self, armed: Armed | None = None) -> AsyncIterator[Child]:
        """``seriatim serve`` in a process of its own, killed at the end if it lives."""
        self.act("seriatim serve")
        async with self.bot.serving(armed) as child:
            yield child

    async def ended(self, child: Child, alice: IrcClient) -> None:
        """A SIGTERM with nothing left to do: alice sees the bot go, and the stop is clean."""
        self.act("SIGTERM")
        child.process.send_signal(signal.SIGTERM)
        await self.sees(alice)
        code = await asyncio.wait_for(child.process.wait(), WAIT_S_MAX)
        self.act(f"exit code {code}")
        assert code == 0, self.bot.log.read_text()

    async def second_start(self) -> tuple[int, str]:
        """Another ``seriatim serve`` on the same home: its exit code and what it says."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, *("-m", "seriatim", "serve", "--config", str(self.bot.config)),
            cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        said, _ = await asyncio.wait_for(process.communicate(), WAIT_S_MAX)
        assert process.returncode is not None
        return process.returncode, normalised(said.decode().strip(), self.bot.home)

    def go(self) -> None:
        """What "later" waits for is there."""
        self._go.touch()


def normalised(text: str, home: Path) -> str:
    """Without what differs from run to run."""
    text = text.replace(str(home), "<home>").replace("(child.py,", "(seriatim,")
    text = re.sub(r"process \d+ on \S+", "process <pid> on <host>", text)
    return re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "<time>", text)


async def _stopped(story: Story, server: Server) -> None:
    story.scene("SIGTERM while a turn runs, with a short drain")
    async with IrcClient.connect(server.host, server.port, ALICE, ROOM) as alice:
        async with story.serving() as child:
            await story.sees_all(alice, f"* {BOT} joins {ROOM}")
            story.say(alice, "hello")
            await story.sees_all(alice, f"<{BOT}> re: hello")
            story.say(alice, "think hard")
            await story.bot.in_store("running")
            story.act("SIGTERM; running turns get half a second (stop.drain_s = 0.5)")
            child.process.send_signal(signal.SIGTERM)
            await story.sees(alice)
            code = await asyncio.wait_for(child.process.wait(), WAIT_S_MAX)
            story.act(f"exit code {code}: a turn was left to be resumed")
            assert code == 1, story.bot.log.read_text()
        async with story.serving() as child:
            await story.sees_all(alice, f"* {BOT} joins {ROOM}", f"<{BOT}> re: think hard (attempt 2)")
            await story.bot.at_rest()
            await story.ended(child, alice)


async def _killed(story: Story, server: Server) -> None:
    story.scene("SIGKILL, in the middle of a turn")
    async with IrcClient.connect(server.host, server.port, ALICE, ROOM) as alice:
        async with story.serving(Armed("mid-turn")) as child:
            await story.sees_all(alice, f"* {BOT} joins {ROOM}")
            story.say(alice, "think twice")
            await asyncio.wait_for(asyncio.shield(child.halted), WAIT_S_MAX)
            story.act("SIGKILL")
            await child.kill()
            await story.sees(alice)
        story.say(alice, "are you there?")
        await alice.settled()
        story.act("nobody heard that: IRC gives nothing again")
        async with story.serving() as child:
            await story.sees_all(alice, f"* {BOT} joins {ROOM}", f"<{BOT}> re: think twice (attempt 2)")
            await story.bot.at_rest()
            await child.kill()
            story.act("SIGKILL, at rest")
            await story.sees(alice)
    story.scene("SIGKILL, when a reply has been sent and that isn't recorded yet")
    async with IrcClient.connect(server.host, server.port, ALICE, ROOM) as alice:
        async with story.serving(Armed("sent-unsettled")) as child:
            await story.sees_all(alice, f"* {BOT} joins {ROOM}")
            story.say(alice, "say it")
            await story.sees_all(alice, f"<{BOT}> re: say it")
            await asyncio.wait_for(asyncio.shield(child.halted), WAIT_S_MAX)
            story.act("SIGKILL")
            await child.kill()
            await story.sees(alice)
        async with story.serving() as child:
            told = f"<{BOT}> Recovered reply (may be a repeat): re: say it"
            await story.sees_all(alice, f"* {BOT} joins {ROOM}", told)
            await story.bot.at_rest()


async def _frozen(story: Story, server: Server) -> None:
    story.scene("SIGSTOP, a second start beside it, SIGCONT")
    async with IrcClient.connect(server.host, server.port, ALICE, ROOM) as alice, story.serving() as child:
        await story.sees_all(alice, f"* {BOT} joins {ROOM}")
        story.say(alice, "one")
        await story.sees_all(alice, f"<{BOT}> re: one")
        await story.bot.at_rest()
        story.act("SIGSTOP")
        child.process.send_signal(signal.SIGSTOP)
        story.say(alice, "two")
        await alice.settled()
        story.act("seriatim serve, a second time")
        code, said = await story.second_start()
        story.lines += [f"       {line}" for line in said.splitlines()]
        story.act(f"exit code {code}")
        assert code == 2
        story.act("SIGCONT")
        child.process.send_signal(signal.SIGCONT)
        await story.sees_all(alice, f"<{BOT}> re: two")
        await story.bot.at_rest()


async def _cut_off(story: Story, server: Server) -> None:
    story.scene("The IRC server goes down and comes back")
    async with story.serving() as child:
        async with IrcClient.connect(server.host, server.port, ALICE, ROOM) as alice:
            await _present(alice)
            story.act(f"{BOT} and {ALICE} are in {ROOM}")
            story.say(alice, "later, please")
            await story.bot.in_store("running")
            story.act("the server is gone; meanwhile the answer is ready")
            server.kill()
            story.go()
            await story.bot.in_store("delivering")
        server.start()
        story.act(f"the server is back; {ALICE} joins")
        async with IrcClient.connect(server.host, server.port, ALICE, ROOM) as alice:
            await story.sees_all(alice, f"* {BOT} joins {ROOM}", f"<{BOT}> re: later, please")
            await story.bot.at_rest()
            await story.ended(child, alice)


async def _present(alice: IrcClient) -> None:
    """Return once the bot is in the room, whoever came first."""
    async with asyncio.timeout(WAIT_S_MAX):
        while True:
            alice.write(f"NAMES {ROOM}")
            line = await alice.wait_for(lambda line: f" 353 {ALICE} " in line)
            if BOT in line.rpartition(":")[2].replace("@", "").split():
                return


async def _tell(story: Story, server: Server) -> None:
    for scene in (_stopped, _killed, _frozen, _cut_off):
        await scene(story, server)


def transcript(folder: Path) -> str:
    """The whole story, in Markdown."""
    with ngircd_server(folder) as server, mock.patch.dict(os.environ):
        story = Story(folder, server)
        asyncio.run(_tell(story, server))
    return "\n".join(story.lines).strip() + "\n"


def told_page() -> str:
    """What the page holds between the marks."""
    return PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].strip() + "\n"


def main() -> None:
    """Write the page's part anew."""
    with tempfile.TemporaryDirectory() as folder:
        made = transcript(Path(folder))
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{made}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
