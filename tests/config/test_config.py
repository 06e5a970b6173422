"""The configuration's keys, and the file and environment that they come from."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from seriatim.config import AdapterConfig, AgentConfig, GatewayConfig, parse_config
from seriatim.configfile import load_config
from seriatim.errors import ConfigError
from seriatim.limits import CONFIG_FILE_BYTES_MAX
from seriatim.settings import described, dotted_keys, setting, text, whole

EVERY_KEY = """
home = "/tmp/home"
group_sessions_per_user = false
thread_sessions_per_user = true
session_store_max_age_days = 30
write_sessions_json = false
operators = ["irc:alice"]

[agent]
kind = "openai"
factory = "house.bot:make"
base_url = "http://127.0.0.1:8080/v1"
model = "small"
api_key = "${KEY}"
system_prompt = "Be brief."
timeout_s = 5
gateway_timeout = 60
gateway_auto_continue_freshness = 60
compress_above_tokens = 100000
compress_keep_turns = 3
[agent.agent_cache]
max_size = 2
idle_ttl_secs = 60
memory_high_mb = 300
max_evictions_per_pass = 4
protect_recent = 0

[turns]
concurrency_max = 3
per_user_max = 2
approval_timeout_s = 60

[budgets]
window_s = 60
turns = 10
tokens = 1000
cost_usd = 0.5
warn_at = 0.5
over = "block"
slow_s = 1

[queue]
collapse = "replace"
busy = "interrupt"
album_window_ms = 100
edit_running = "ignore"
edit_after = "turn"
waiting_max = 50

[delivery]
separate_attempt = true
max_age_s = 60
attempts_ambiguous_max = 1
partial = "send"

[admission]
dm_without_ids = "shared"
max_age_s = 3600
bot_exchanges_max = 3

[commands]
prefix = "!"
max_age_s = 60
stop_suspends = false

[storage]
on_unavailable = "spool"
[stop]
drain_s = 0.5
on_restart = "exit"
watchdog_s = 5

[privacy]
redact_pii = true
[home_channels]
telegram = "-100"
irc = {chat_id = "#bots", name = "Bots"}

[adapters.irc]
type = "irc"
host = "127.0.0.1"
port = 6667
[adapters.here]
type = "terminal"
"""


@attrs.frozen(kw_only=True)
class IrcLike:
    """What an adapter hands in."""

    host: str = setting("localhost", text(), doc="A host.")
    port: int = setting(6697, whole(1, 65535), doc="A port.")


def test_without_a_file_the_defaults_count(tmp_path: Path) -> None:
    """No file and an empty environment give the defaults, which a program gets by calling the class."""
    assert load_config(environ={}) == GatewayConfig()


def test_the_defaults_are_the_promised_ones() -> None:
    """Names and defaults that others rely on stay as they are."""
    made = GatewayConfig()

    assert (made.home, made.group_sessions_per_user, made.thread_sessions_per_user) == ("state", True, False)
    assert made.agent.gateway_auto_continue_freshness == 3600
    cache = made.agent.agent_cache
    assert (cache.max_size, cache.memory_high_mb, cache.max_evictions_per_pass, cache.protect_recent) == (
        128,
        "auto",
        16,
        8,
    )
    assert (made.queue.collapse, made.queue.busy) == ("merge", "queue")
    assert (made.delivery.separate_attempt, made.delivery.max_age_s, made.delivery.attempts_ambiguous_max) == (
        False,
        86_400,
        3,
    )
    assert made.admission.dm_without_ids == "refuse"
    assert made.commands.stop_suspends is True
    assert made.storage.on_unavailable == "refuse"


def test_a_file_may_set_every_key(tmp_path: Path) -> None:
    """One file sets every key there is, each to something else than its default."""
    file = tmp_path / "seriatim.toml"
    file.write_text(EVERY_KEY)

    made = load_config(file, {"KEY": "s3cret"})

    assert made.agent.api_key == "s3cret"
    untouched = [key for key, default, *_ in described(GatewayConfig) if _at(made, key) == default]
    assert untouched == []
    assert [adapter.name for adapter in made.adapters] == ["irc", "here"]


def _at(value: object, key: str) -> object:
    for part in key.split("."):
        value = getattr(value, part)
    return value


@pytest.mark.parametrize("key", [key for key in dotted_keys(GatewayConfig) if key != "adapters"])
def test_every_key_can_be_set_by_its_variable(key: str) -> None:
    """Each key has one variable, SERIATIM_ and the key with two underscores for a dot: nothing is no value for it."""
    variable = "SERIATIM_" + key.upper().replace(".", "__")
    with pytest.raises(ConfigError) as refused:
        parse_config({}, {variable: ""})

    assert refused.value.key == key
    assert refused.value.reason.endswith(f"(from {variable})")


@pytest.mark.parametrize(
    ("told", "budget"),
    [
        ("auto", "auto"),
        (" Auto", "auto"),
        (512, 512),
        (0, 0),
        (False, 0),
        ("off", 0),
        ("OFF", 0),
        ("none", 0),
        ("false", 0),
        ("disabled", 0),
        ("", 0),
    ],
)
def test_a_memory_budget_is_a_word_or_a_number(told: object, budget: object) -> None:
    """In the file: auto, MiB, or 0 and the words for off; whatever of it a variable can say, it says, too."""
    assert parse_config(_cache(memory_high_mb=told), {}).agent.agent_cache.memory_high_mb == budget
    if told != "":
        variable = {"SERIATIM_AGENT__AGENT_CACHE__MEMORY_HIGH_MB": str(told)}
        assert parse_config({}, variable).agent.agent_cache.memory_high_mb == budget


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("memory_high_mb", -1),
        ("memory_high_mb", True),
        ("memory_high_mb", 0.5),
        ("memory_high_mb", "much"),
        ("memory_high_mb", "512"),
        ("memory_high_mb", []),
        ("memory_high_mb", None),
        ("max_evictions_per_pass", 0),
        ("max_evictions_per_pass", True),
        ("max_evictions_per_pass", "16"),
        ("protect_recent", -1),
        ("protect_recent", False),
        ("protect_recent", "8"),
    ],
)
def test_a_bad_memory_bound_is_refused(key: str, told: object) -> None:
    """What is no bound is refused under its key: to take it for off would be to find out too late."""
    with pytest.raises(ConfigError) as refused:
        parse_config(_cache(**{key: told}), {})

    assert refused.value.key == f"agent.agent_cache.{key}"


def _cache(**told: object) -> dict[str, object]:
    return {"agent": {"agent_cache": told}}


def test_two_variables_point_at_a_model() -> None:
    """Base URL and model alone choose the agent that speaks to a model."""
    environ = {"SERIATIM_AGENT__BASE_URL": "http://127.0.0.1:1/v1", "SERIATIM_AGENT__MODEL": "small"}

    made = parse_config({}, environ).agent

    assert (made.chosen, made.base_url, made.model) == ("openai", "http://127.0.0.1:1/v1", "small")
    assert AgentConfig().chosen == "history"
    assert AgentConfig(factory="a.b:c").chosen == "factory"


@pytest.mark.parametrize(
    ("agent", "key"),
    [
        ({"model": "m"}, "agent.base_url"),
        ({"base_url": "http://h"}, "agent.model"),
        ({"kind": "openai"}, "agent.base_url"),
        ({"kind": "factory"}, "agent.factory"),
        ({"factory": "a:b", "base_url": "http://h", "model": "m"}, "agent.kind"),
        ({"base_url": "h:80", "model": "m"}, "agent.base_url"),
        ({"factory": "a.b"}, "agent.factory"),
        ({"factory": "a:b.c()"}, "agent.factory"),
    ],
)
def test_half_an_agent_is_refused(agent: dict[str, object], key: str) -> None:
    """Settings that belong together are asked for together, by key."""
    with pytest.raises(ConfigError) as refused:
        parse_config({"agent": agent}, {})

    assert refused.value.key == key


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"agnt": {}}, "agnt: unknown key; did you mean agent?"),
        ({"agent": {"timout_s": 3}}, "agent.timout_s: unknown key; did you mean agent.timeout_s?"),
        ({"max_size": 3}, "max_size: unknown key; did you mean agent.agent_cache.max_size?"),
        ({"storage": {"on_unavailable": "wait"}}, 'storage.on_unavailable: must be "refuse" or "spool", not "wait"'),
        ({"queue": {"busy": "steal"}}, 'queue.busy: must be "queue", "interrupt", "steer" or "refuse", not "steal"'),
        ({"adapters": []}, "adapters: must be a table of tables, not a list"),
        ({"adapters": {"irc": 3}}, "adapters.irc: must be a table with a type"),
        ({"adapters": {"I C": {}}}, "adapters.I C: the name must be lower-case letters, digits, _ and -"),
        ({"adapters": {"a": {"type": 3}}}, "adapters.a.type: must be text that isn't empty"),
    ],
)
def test_what_is_not_understood_is_refused(values: dict[str, object], message: str) -> None:
    """Nothing is accepted and then ignored: each refusal is one line that begins with the full dotted key."""
    with pytest.raises(ConfigError) as refused:
        parse_config(values, {})

    assert str(refused.value) == message


def test_a_misspelt_variable_is_refused_by_name() -> None:
    """A variable that sets no key is refused like a misspelt key; a neighbour's variable is left alone."""
    with pytest.raises(ConfigError, match=r"^turns\.max: unknown key \(from SERIATIM_TURNS__MAX\)$"):
        parse_config({}, {"SERIATIM_TURNS__MAX": "1"})
    assert parse_config({}, {"SERIATIM_REQUIRE_SERVERS": "1"}) == GatewayConfig()


def test_an_adapter_checks_its_own_options() -> None:
    """Options are free until the adapter's class reads them; then they are held to it, under the account's key."""
    environ = {"SERIATIM_ADAPTERS__IRC__PORT": "6667"}
    [adapter] = parse_config({"adapters": {"irc": {"type": "irc", "host": "h"}}}, environ).adapters

    assert adapter.type == "irc"
    assert adapter.parse(IrcLike) == IrcLike(host="h", port=6667)
    with pytest.raises(ConfigError, match=r"^adapters\.b\.prot: unknown key; did you mean adapters\.b\.port\?$"):
        AdapterConfig("b", "irc", {"prot": 1}).parse(IrcLike)


def test_no_secret_is_in_the_repr() -> None:
    """The configuration can be printed: API keys and adapters' options are left out."""
    shown = repr(
        parse_config({"agent": {"api_key": "hunter2"}, "adapters": {"a": {"type": "irc", "password": "hunter3"}}}, {})
    )

    assert "hunter" not in shown


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"home = ", "isn't TOML: "),
        (b"home = 1\nhome = 2", "isn't TOML: "),
        (b"home = '\xff'", "isn't UTF-8 text (byte 8)"),
        (b" " * (CONFIG_FILE_BYTES_MAX + 1), "is no configuration: larger than"),
    ],
)
def test_a_file_that_is_no_configuration_is_named(tmp_path: Path, content: bytes, reason: str) -> None:
    """An unreadable, broken or oversized file gets an error with its path as the key."""
    file = tmp_path / "seriatim.toml"
    file.write_bytes(content)

    with pytest.raises(ConfigError) as refused:
        load_config(file, {})

    assert refused.value.key == str(file)
    assert refused.value.reason.startswith(reason)


@pytest.mark.parametrize("name", ["missing.toml", "."])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    """A missing file or a folder in its place gets one line with its path."""
    with pytest.raises(ConfigError, match=r"can't be read: [^\n]+$") as refused:
        load_config(tmp_path / name, {})

    assert refused.value.key == str(tmp_path / name)
