"""What outlives the process: the platform, the people, what the tools did, and what was found wrong."""

from __future__ import annotations

import re
from collections import Counter

from seriatim.aliases import Alias
from seriatim.events import Event, LogId
from seriatim.model import MessageEvent, Platform, SessionSource
from seriatim.storage.contract import StoreReader
from seriatim.testing.fake_platform import FakePlatform, Posted
from seriatim.testing.scripted import Ran
from seriatim.testing.witness import Effects, whole
from tests.crash.scenario import Again, Same, Say, Scenario, Step, Switch


class Ground:
    """The world around one run. ``done``: steps of the script that were taken; ``wrong``: violations, as text."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.platform = FakePlatform(capabilities=scenario.capabilities)
        self.platform.fail_next(*scenario.sends)
        self.done = 0
        self.life = 0
        self.tools: list[Ran] = []
        self.effects = Effects()
        self.checked: Counter[str] = Counter()
        self.refused: set[str] = set()
        self.given: list[dict[str, str]] = []
        self.joined: dict[LogId, list[int]] = {}
        self.struck: Counter[str] = Counter()
        self.deaths = 0
        """Deaths of the process and of actors, that may have interrupted a turn."""
        self.archived: dict[LogId, list[Event]] = {}
        """Events that compactions were about to remove."""
        self.untold: list[Alias] = []
        """What the platform still has to tell."""
        self.switches: list[Switch] = []
        """What the host still has to ask."""
        self.wrong: list[str] = []

    def complain(self, text: str) -> None:
        """Note a violation, once."""
        if text not in self.wrong:
            self.wrong.append(text)

    def echoed(self, text: str) -> bool:
        """Whether the agent repeats this text."""
        if not text:
            return False  # a /retry: it repeats what it asks for again
        return text.split(maxsplit=1)[0] not in ("fail", "silent", "never", "long")

    def whole(self, reader: StoreReader, log: LogId) -> list[Event]:
        """All events of a log, those that its archive stands for included."""
        return whole(reader, log, self.archived)

    @property
    def next_step(self) -> Step | None:
        """What the script has next."""
        script = self.scenario.script
        return script[self.done] if self.done < len(script) else None

    def take_step(self) -> None:
        """The script goes on."""
        step = self.next_step
        assert step is not None
        self.done += 1
        if isinstance(step, Again):
            self.platform.post(self.platform.posted[step.number - 1].event)
        elif isinstance(step, Same):
            self.untold.append(Alias("fake", step.old, step.new, "chat", "fake"))
        elif isinstance(step, Switch):
            self.switches.append(step)
        if not isinstance(step, Say):
            return
        number = sum(1 for taken in self.scenario.script[: self.done] if isinstance(taken, Say))
        person = f"u{step.chat}"
        source = SessionSource(platform=Platform("fake"), chat_id=step.chat, user_id=person, thread_id=step.topic)
        text = step.text.replace("?", self._asked())
        self.platform.post(
            MessageEvent(
                text,
                source,
                account="fake",
                message_id=f"in{number}",
                internal=step.wake,
                album_id=step.album,
                edit_of=step.edit_of,
            )
        )

    def _asked(self) -> str:
        """The id of the question that arrived last."""
        asked = [found[1] for got in self.platform.received if (found := re.search(r"/approve (\S+)", got.out.text))]
        return asked[-1] if asked else "none"

    def ack(self, posted: Posted) -> None:
        """The platform hears that the bot has it."""
        self.platform.ack(posted)
