"""The built-in agent for a model behind an OpenAI-compatible API (``pip install seriatim[openai]``).

It streams chat completions, shows them as they come, and hands back the whole with usage and finish reason. It
has no tools. Cancelling the turn closes the connection, which is how such servers learn to stop.
"""

from __future__ import annotations

import asyncio
import email.utils
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from attrs import define, field

from seriatim.actors.live_turn import Turn
from seriatim.adapters.agents.sse import events_of
from seriatim.errors import ConfigError, ModelError
from seriatim.limits import REPLY_BYTES_MAX
from seriatim.turn import Reply, Usage

if TYPE_CHECKING:
    import httpx

_BACKOFF_S: Final = (0.5, 1.0, 2.0, 4.0, 8.0)
_PARTIAL_CHARS_MAX: Final = 1000


@define
class _Answer:
    """What has arrived of one completion."""

    texts: list[str] = field(factory=list)
    chars: int = 0
    finish: str | None = None
    usage: Usage | None = None
    done: bool = False

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def partial(self) -> str:
        text = self.text
        return text if len(text) <= _PARTIAL_CHARS_MAX else text[:_PARTIAL_CHARS_MAX] + "…"


class OpenAICompatible:
    """An agent that asks a chat-completions endpoint.

    ``base_url``: up to and including the version ("http://127.0.0.1:8080/v1"). ``timeout_s``: the longest
    silence of the server, seconds. ``history_messages_max``: how many messages before the turn are sent,
    newest kept. ``retries_max``: attempts after the first, only before the first token, for refused
    connections, 429 and 5xx; ``retry_after_s_max``: a server that asks for a longer wait is taken at its
    word, as a failure. ``options``: merged into the request (temperature, max_tokens, …). ``context``: whether
    the system prompt ends with the turn's context block. ``transport`` and ``sleep`` are for tests. Raises
    ConfigError when httpx is not installed.

    One instance serves all lanes, on the gateway's loop; ``cleanup`` closes its connections.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        api_key: str | None = None,
        system_prompt: str | None = None,
        *,
        timeout_s: float = 120.0,
        history_messages_max: int = 100,
        retries_max: int = 4,
        retry_after_s_max: float = 60.0,
        headers: Mapping[str, str] | None = None,
        options: Mapping[str, Any] | None = None,
        context: bool = True,
        transport: httpx.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        _httpx()
        self._url = base_url.rstrip("/") + "/chat/completions"
        self._model = model
        self._system_prompt = system_prompt
        self._timeout_s = timeout_s
        self._history_max = history_messages_max
        self._retries_max = retries_max
        self._retry_after_s_max = retry_after_s_max
        self._headers = dict(headers or {})
        if api_key is not None:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._options = dict(options or {})
        self._context = context
        self._transport = transport
        self._sleep = sleep
        self._client: httpx.AsyncClient | None = None

    def __repr__(self) -> str:
        return f"<OpenAICompatible {self._model} at {self._url}>"  # never the key

    async def run(self, turn: Turn) -> Reply:
        """Ask the model. Raises ModelError when no whole answer came."""
        answer = _Answer()
        async with self._stream(turn) as response:
            if response.headers.get("content-type", "").startswith("application/json"):
                _take_whole(answer, await _json_of(response))
            else:
                await self._read(turn, answer, response)
        if not answer.done and answer.finish is None:
            raise ModelError("the model's server broke off", partial=answer.partial)
        return Reply(answer.text, answer.usage, answer.finish)

    async def cleanup(self) -> None:
        """Close the connections; another ``run`` opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def messages(self, turn: Turn) -> list[dict[str, str]]:
        """The request's messages: system prompt, the newest of the history, the turn's text.

        In a shared session user messages bear their author's prefix, as ``turn.text`` does. Tool messages
        are left out: this agent offers no tools, and servers refuse results without their calls.
        """
        newest = (m for m in reversed(turn.history) if m.role in ("user", "assistant") and m.text)
        said = reversed(list(islice(newest, self._history_max)))
        made = [{"role": m.role, "content": turn.told(m)} for m in said]
        system = [
            *([self._system_prompt] if self._system_prompt else []),
            *([turn.context_prompt()] if self._context else []),
        ]
        if system:
            made.insert(0, {"role": "system", "content": "\n\n".join(system)})
        return [*made, {"role": "user", "content": turn.model_text}]

    async def _read(self, turn: Turn, answer: _Answer, response: httpx.Response) -> None:
        httpx = _httpx()
        try:
            async with aclosing(events_of(response.aiter_bytes())) as events:
                async for event in events:
                    if event is None:
                        answer.done = True
                        return
                    _take_event(turn, answer, event)
        except httpx.TransportError as exc:
            raise ModelError(f"the model's server broke off ({type(exc).__name__})", partial=answer.partial) from exc

    @asynccontextmanager
    async def _stream(self, turn: Turn) -> AsyncIterator[httpx.Response]:
        """The response whose body is the answer, after retries. Closed when the turn leaves it."""
        response = await self._begin(turn)
        try:
            yield response
        finally:
            await response.aclose()

    async def _begin(self, turn: Turn) -> httpx.Response:
        httpx = _httpx()
        body = {
            "model": self._model,
            "messages": self.messages(turn),
            "stream": True,
            "stream_options": {"include_usage": True},
        } | self._options
        headers = self._headers | {"Idempotency-Key": turn.idempotency_key}
        for attempt in range(self._retries_max + 1):
            client = self._open_client()
            request = client.build_request("POST", self._url, json=body, headers=headers)
            asked: float | None = None
            try:
                response = await client.send(request, stream=True)
            except httpx.ReadTimeout:
                raise ModelError(f"the model's server was silent for {self._timeout_s:g} s") from None
            except httpx.TransportError as exc:
                problem = ModelError(f"the model's server can't be reached ({type(exc).__name__})")
            else:
                if response.status_code == 200:
                    return response
                problem = await _refusal(response)
                if not _repeatable(response.status_code):
                    raise problem
                asked = _retry_after_s(response.headers.get("retry-after"))
            if attempt == self._retries_max or (asked or 0.0) > self._retry_after_s_max:
                raise problem
            await self._sleep(asked if asked is not None else _BACKOFF_S[min(attempt, len(_BACKOFF_S) - 1)])
        raise AssertionError("unreachable")

    def _open_client(self) -> httpx.AsyncClient:
        client = self._client
        if client is None:
            httpx = _httpx()
            # As many connections as there are turns: the gateway's slots are the bound.
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
            client = httpx.AsyncClient(timeout=self._timeout_s, limits=limits, transport=self._transport)
            self._client = client
        return client


def _httpx() -> Any:
    try:
        import httpx  # optional: the extra brings it
    except ImportError:
        raise ConfigError("agent", "OpenAICompatible needs httpx: pip install seriatim[openai]") from None
    return httpx


def _take_event(turn: Turn, answer: _Answer, event: dict[str, Any]) -> None:
    if event.get("error"):
        raise ModelError(f"the model's server failed: {_said(event)}", partial=answer.partial)
    usage = event.get("usage")
    if isinstance(usage, dict):
        answer.usage = _usage(usage)
    for choice in _choices(event):
        delta = choice.get("delta")
        text = delta.get("content") if isinstance(delta, dict) else None
        if isinstance(text, str) and text:
            answer.texts.append(text)
            answer.chars += len(text)
            if answer.chars > REPLY_BYTES_MAX:
                raise ModelError(f"the answer is larger than {REPLY_BYTES_MAX} bytes", partial=answer.partial)
            turn.emit(text)
        if isinstance(choice.get("finish_reason"), str):
            answer.finish = choice["finish_reason"]


def _take_whole(answer: _Answer, body: dict[str, Any]) -> None:
    """A server that doesn't stream answers with the whole."""
    for choice in _choices(body):
        message = choice.get("message")
        text = message.get("content") if isinstance(message, dict) else None
        if isinstance(text, str):
            answer.texts.append(text)
            answer.done = True
        if isinstance(choice.get("finish_reason"), str):
            answer.finish = choice["finish_reason"]
    if isinstance(body.get("usage"), dict):
        answer.usage = _usage(body["usage"])


def _choices(event: dict[str, Any]) -> list[dict[str, Any]]:
    choices = event.get("choices")
    first = choices[:1] if isinstance(choices, list) else []
    return [choice for choice in first if isinstance(choice, dict)]


def _usage(data: dict[str, Any]) -> Usage:
    details = data.get("prompt_tokens_details")
    prompt = _count(data, "prompt_tokens")
    return Usage(
        input=prompt,
        output=_count(data, "completion_tokens"),
        cache_read=_count(details, "cached_tokens") if isinstance(details, dict) else 0,
        total=_count(data, "total_tokens"),
        last_prompt_tokens=prompt,
    )


def _count(data: dict[str, Any], name: str) -> int:
    figure = data.get(name)
    return figure if type(figure) is int and figure >= 0 else 0


def _repeatable(status: int) -> bool:
    return status == 429 or status >= 500


async def _refusal(response: httpx.Response) -> ModelError:
    """The server's own words, bounded; its body is read no further than that."""
    said = b""
    try:
        async for chunk in response.aiter_bytes():
            said += chunk
            if len(said) > 4096:
                break
    except _httpx().TransportError:
        said = b""
    finally:
        await response.aclose()
    text = " ".join(said[:400].decode("utf-8", "replace").split())
    status = response.status_code
    return ModelError(f"the model's server answered {status}" + (f": {text}" if text else ""), status=status)


async def _json_of(response: httpx.Response) -> dict[str, Any]:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > 2 * REPLY_BYTES_MAX:
            raise ModelError("the model's server sent an endless answer")
    try:
        data = json.loads(body)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise ModelError("the model's server sent an answer that is not JSON")
    if data.get("error"):
        raise ModelError(f"the model's server failed: {_said(data)}")
    return data


def _said(event: dict[str, Any]) -> str:
    error = event.get("error")
    text = error.get("message") if isinstance(error, dict) else error
    return str(text)[:400]


def _retry_after_s(value: str | None) -> float | None:
    """Seconds, from either form of the header; None when it is absent or unreadable."""
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        when = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, when.timestamp() - time.time())
