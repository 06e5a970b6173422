"""The agent for OpenAI-compatible servers, run by the real runner against a scripted server."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from seriatim.actors.turns import AgentRunner
from seriatim.adapters.agents.openai import OpenAICompatible, _retry_after_s
from seriatim.errors import ConfigError
from seriatim.turn import Message, TurnDelta, TurnEnded, Usage
from tests.agents.stub import Answer, Stub, stub
from tests.turns.harness import Ear, claim, job


def ask(
    *answers: Answer,
    then: Callable[[Stub, AgentRunner, Ear], Awaitable[None]] | None = None,
    agent: dict[str, Any] | None = None,
    turn: dict[str, Any] | None = None,
) -> tuple[TurnEnded, Stub, Ear]:
    """One turn against a stub with these answers."""

    async def whole() -> tuple[TurnEnded, Stub, Ear]:
        async with stub(*answers) as server:
            asked = OpenAICompatible(server.url, "tiny", context=False, **(agent or {}))
            runner = AgentRunner(asyncio.get_running_loop(), asked)
            ear = Ear()
            runner.start(job(**(turn or {})), ear)
            if then is not None:
                await then(server, runner, ear)
            await ear.until(lambda: bool(ear.ends))
            await runner.close(5)
            return ear.ends[0], server, ear

    return asyncio.run(whole())


class Waits(list[float]):
    """Stands for sleeping."""

    async def __call__(self, seconds: float) -> None:
        """Note how long it would have been."""
        self.append(seconds)


def test_an_answer_is_streamed_and_returned_whole() -> None:
    """Deltas come piece by piece; the end has the text, usage and finish reason."""
    ended, _, ear = ask(Answer(pieces=("Grüß", " dich\u2028", "🙂")))
    assert [delta.text for delta in ear.of(TurnDelta)] == ["Grüß", " dich\u2028", "🙂"]
    assert (ended.reason, ended.text, ended.finish) == ("completed", "Grüß dich\u2028🙂", "stop")
    assert ended.usage == Usage(input=7, output=2, total=9, last_prompt_tokens=7)


def test_the_request_names_model_key_and_turn() -> None:
    """The key goes into its header, the turn's idempotency key into another, options into the body."""
    _, server, _ = ask(Answer(), agent={"api_key": "sesame", "options": {"temperature": 0}})
    assert server.headers[0]["authorization"] == "Bearer sesame"
    assert server.headers[0]["idempotency-key"] == "lane/1"
    assert (server.requests[0]["model"], server.requests[0]["temperature"]) == ("tiny", 0)


def test_the_key_is_never_shown() -> None:
    """The agent's repr, which logs may print, has no key."""
    assert "sesame" not in repr(OpenAICompatible("http://x/v1", "tiny", "sesame"))


def test_history_becomes_messages() -> None:
    """System prompt, the newest of the history without tool results, then the turn's text."""
    history = (
        Message("user", "old", 0, 1),
        Message("user", "one", 0, 2, "Ada"),
        Message("tool", "41", 0, 2),
        Message("assistant", "two", 0, 2),
    )
    _, server, _ = ask(
        Answer(), agent={"system_prompt": "Be kind.", "history_messages_max": 2}, turn={"history": history}
    )
    assert server.requests[0]["messages"] == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": "hi"},
    ]


def test_shared_sessions_name_their_speakers() -> None:
    """In a shared session each user message bears an inert label, in history as in the turn."""
    claims = (claim("a"), claim("b", "Bo]\n[Eve"))
    history = (Message("user", "one", 0, 1, "Bo]\n[Eve"), Message("assistant", "two", 0, 1))
    _, server, _ = ask(Answer(), turn={"claims": claims, "history": history, "shared": True})
    assert [m["content"] for m in server.requests[0]["messages"]] == [
        "[Bo) (Eve] one",
        "two",
        "[Ada] a\n[Bo) (Eve] b",
    ]


def test_cancelling_frees_the_server() -> None:
    """A cancelled turn closes its stream at once: the server sees its client leave and is idle."""

    async def then(server: Stub, runner: AgentRunner, ear: Ear) -> None:
        await ear.until(lambda: bool(ear.of(TurnDelta)))
        assert server.busy == 1
        runner.cancel("lane", 1, "user")
        await server.until(lambda: server.busy == 0 and server.left == 1)

    ended, _, _ = ask(Answer(hold=True), then=then)
    assert (ended.reason, ended.detail) == ("aborted", "user")


@pytest.mark.parametrize("status", [429, 500, 503])
def test_refusals_before_the_first_token_are_retried(status: int) -> None:
    """A server that is busy or failing is asked again, after growing waits."""
    waits = Waits()
    ended, server, _ = ask(Answer(status=status), Answer(status=status), Answer(), agent={"sleep": waits})
    assert (ended.text, len(server.requests), waits) == ("Hello there", 3, [0.5, 1.0])
    assert len({headers["idempotency-key"] for headers in server.headers}) == 1


def test_the_server_says_how_long_to_wait() -> None:
    """Retry-After in seconds is honoured."""
    waits = Waits()
    ended, _, _ = ask(Answer(status=429, headers={"retry-after": "3"}), Answer(), agent={"sleep": waits})
    assert (ended.reason, waits) == ("completed", [3.0])


def test_retry_after_may_be_a_date() -> None:
    """Both forms of the header are read; nonsense is as if it weren't there."""
    assert _retry_after_s("Thu, 01 Jan 1970 00:00:00 GMT") == 0.0
    assert _retry_after_s("soon") is None


def test_a_wait_beyond_the_bound_fails_at_once() -> None:
    """A server that asks for an hour is not waited for."""
    waits = Waits()
    ended, _, _ = ask(Answer(status=429, headers={"retry-after": "3600"}, body="later"), agent={"sleep": waits})
    assert (ended.reason, waits) == ("failed", [])
    assert ended.detail == "ModelError: the model's server answered 429: later"


def test_retries_end() -> None:
    """After the last attempt the turn fails with the server's own words."""
    ended, server, _ = ask(*[Answer(status=500, body="ouch")] * 3, agent={"sleep": Waits(), "retries_max": 2})
    assert (ended.reason, len(server.requests)) == ("failed", 3)
    assert ended.detail == "ModelError: the model's server answered 500: ouch"


def test_other_refusals_are_not_repeated() -> None:
    """A request that is wrong stays wrong."""
    ended, server, _ = ask(Answer(status=401, body='{"error": "no key"}'))
    assert (ended.reason, len(server.requests)) == ("failed", 1)
    assert "401" in (ended.detail or "")


def test_a_refused_connection_is_retried() -> None:
    """No server at all: retried, then told."""
    waits = Waits()

    async def whole() -> TurnEnded:
        async with stub() as server:
            url = server.url
        agent = OpenAICompatible(url, "tiny", sleep=waits, retries_max=2)
        runner, ear = AgentRunner(asyncio.get_running_loop(), agent), Ear()
        runner.start(job(), ear)
        await ear.until(lambda: bool(ear.ends))
        await runner.close(5)
        return ear.ends[0]

    assert asyncio.run(whole()).detail == "ModelError: the model's server can't be reached (ConnectError)"
    assert waits == [0.5, 1.0]


def test_a_stream_that_breaks_off_fails_with_what_had_come() -> None:
    """After the first token there is no retry; the partial text is in the detail."""
    ended, server, _ = ask(Answer(pieces=("Once upon",), drop=True))
    assert (ended.reason, ended.text, len(server.requests)) == ("failed", None, 1)
    assert (ended.detail or "").endswith("until then it had said: Once upon")


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "broke off"),
        (b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n', "broke off; until then it had said: a"),
        (b'data: {"error": {"message": "out of memory"}}\n\n', "out of memory"),
        (b"data: nonsense\n\n", "not JSON"),
        (b"data: " + b"x" * (1024 * 1024 + 10), "endless line"),
    ],
)
def test_malformed_streams_fail(raw: bytes, said: str) -> None:
    """What is no whole answer is never taken for one."""
    ended, _, _ = ask(Answer(raw=raw))
    assert ended.reason == "failed"
    assert said in (ended.detail or "")


def test_odd_but_whole_streams_are_taken() -> None:
    """Comments, CRLF, missing spaces, no usage and no [DONE] after the finish reason are all seen in the field."""
    raw = b': ping\r\n\r\ndata:{"choices":[{"delta":{"role":"assistant","content":null}}]}\r\n\r\n'
    raw += b'data: {"choices":[{"delta":{"content":"ok"},"finish_reason":"length"}],"usage":null}'
    ended, _, _ = ask(Answer(raw=raw))
    assert (ended.text, ended.finish, ended.usage) == ("ok", "length", None)


def test_a_server_that_does_not_stream_is_understood() -> None:
    """A plain JSON completion is the whole answer."""
    raw = b'{"choices": [{"message": {"content": "whole"}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 1}}'
    ended, _, _ = ask(Answer(raw=raw, content_type="application/json"))
    assert (ended.text, ended.finish) == ("whole", "stop")


def test_a_silent_server_fails_the_turn() -> None:
    """After timeout_s without a byte the turn fails; what had come is kept."""
    ended, _, _ = ask(Answer(hold=True), agent={"timeout_s": 0.2})
    assert ended.detail == "ModelError: the model's server broke off (ReadTimeout); until then it had said: Hello"


def test_without_httpx_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra is named."""
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(ConfigError, match=r"pip install seriatim\[openai\]"):
        OpenAICompatible("http://x/v1", "tiny")
