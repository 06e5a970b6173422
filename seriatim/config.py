"""The configuration: every key, its default, its unit and its meaning. Pure; ``configfile`` reads the file.

Three sources, the later one wins: the defaults below, one TOML file, and environment variables named
``SERIATIM_<SECTION>__<KEY>`` (``SERIATIM_AGENT__BASE_URL`` is ``agent.base_url``; keys of the top level have one
part: ``SERIATIM_HOME``). Inside the file's texts ``${NAME}`` stands for an environment variable. Anything not
understood is refused with its dotted key; nothing is accepted and then ignored.

Keys keep the names that gateways of this kind already use. The timer settings of old configurations are taken, have no
effect, and are named in one warning.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from typing import Final, Literal, TypeVar

import attrs

from seriatim.context import HomeChannel
from seriatim.errors import ConfigError, InvalidInputError
from seriatim.limits import ALBUM_MS_MAX, ID_CHARS_MAX, WAITING_MAX
from seriatim.model import Platform
from seriatim.pressure import MemoryHigh
from seriatim.settings import (
    Kind,
    build,
    choice,
    dotted_keys,
    expand,
    flag,
    number,
    optional,
    overridden,
    section,
    setting,
    text,
    texts,
    whole,
)

T = TypeVar("T")

ENVIRONMENT_PREFIX = "SERIATIM_"

_NAME = r"[a-z0-9][a-z0-9_-]*"
_FACTORY = r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*"
_URL = r"https?://[^\s/]+(/\S*)?"
_OPERATOR = r"[a-z0-9_-]+:\S.*"
_DAY_S = 86_400
_OFF = frozenset({"", "off", "none", "false", "disabled"})


def _memory_high() -> Kind:
    number = whole(0)

    def check(value: object) -> object:
        if isinstance(value, str):
            word = value.strip().lower()
            if word != "auto" and word not in _OFF:
                raise ValueError
            return "auto" if word == "auto" else 0
        return 0 if value is False else number.check(value)

    def read(line: str) -> object:
        if not line.strip():
            raise ValueError  # a variable that is empty was forgotten, not meant
        return int(line) if line.strip().isdecimal() else line

    return Kind('"auto", a whole number of MiB of at least 1, or "off"', check, read)


@attrs.frozen(kw_only=True)
class AgentCacheConfig:
    """How many warm agents and transcripts are kept in memory, and how much memory they may take."""

    max_size: int = setting(128, whole(1, 1_000_000), doc="Warm sessions kept; the longest unused goes first.")
    idle_ttl_secs: int = setting(
        3600, whole(0), doc="A session without a turn for so many seconds is let go of from memory; 0: never."
    )
    memory_high_mb: MemoryHigh = setting(
        "auto",
        _memory_high(),
        doc="MiB of anonymous memory over which the longest unused warm sessions are let go of; 0 or a word for off: "
        'never. "auto": 65 % of the tightest limit of the control groups that the process is in, else of the '
        "machine's memory; off if that is under 512.",
    )
    max_evictions_per_pass: int = setting(
        16, whole(1, 1_000_000), doc="Sessions that are let go of at a time then; memory is looked at each minute."
    )
    protect_recent: int = setting(
        8,
        whole(0, 1_000_000),
        doc="The most recently used sessions, which stay then; never more than half of the warm ones.",
    )


@attrs.frozen(kw_only=True)
class AgentConfig:
    """Who answers, and how long they may take.

    ``kind`` "auto" is "factory" where a factory is named, "openai" where a ``base_url`` is, else "history": the
    built-in agent that needs no model. Naming a kind chooses among settings that are all there.
    """

    kind: Literal["auto", "history", "openai", "factory"] = setting(
        "auto",
        choice("auto", "history", "openai", "factory"),
        doc="Which agent answers.",
    )
    factory: str | None = setting(
        None,
        optional(text(matching=_FACTORY, says='a name of the form "module:function"')),
        doc="Function that is called with a session and returns its agent.",
    )
    base_url: str | None = setting(
        None,
        optional(text(matching=_URL, says="an address that begins with http:// or https://")),
        doc="An OpenAI-compatible API, up to and without /chat/completions.",
    )
    model: str | None = setting(None, optional(text()), doc="Name of the model there.")
    api_key: str | None = setting(None, optional(text()), doc="Sent as bearer token; absent: none is.", secret=True)
    system_prompt: str | None = setting(None, optional(text()), doc="Stands before the conversation.")
    timeout_s: float = setting(
        120.0, number(above=0), doc="Longest silence of the model's server, seconds, before the call counts as failed."
    )
    gateway_timeout: int = setting(
        1800,
        whole(0),
        doc="Seconds without a sign of life from its agent (text, step, result) after which a turn ends; 0: never.",
    )
    gateway_auto_continue_freshness: int = setting(
        3600, whole(0), doc="A turn interrupted longer ago than this, seconds, isn't continued by itself."
    )
    compress_above_tokens: int = setting(
        0,
        whole(0),
        doc="A conversation whose last prompt had this many tokens is compressed before its next turn; 0: never.",
    )
    compress_keep_turns: int = setting(2, whole(1), doc="Newest turns that a compression leaves as they are.")
    agent_cache: AgentCacheConfig = setting(AgentCacheConfig(), section(AgentCacheConfig), doc="Warm state.")

    def __attrs_post_init__(self) -> None:
        """Refuse half an agent.

        Raises:
            ConfigError: a chosen kind whose settings are missing, or two that exclude each other.

        """
        if self.kind == "auto" and self.factory and self.base_url:
            raise ConfigError("kind", 'must say "factory" or "openai" where both are set')
        if self.kind == "factory" and not self.factory:
            raise ConfigError("factory", 'is missing for kind "factory"')
        if self.chosen == "openai" or (self.chosen == "history" and self.kind == "auto" and self.model):
            for name in ("base_url", "model"):
                if not getattr(self, name):
                    raise ConfigError(name, "is missing; a model is reached by base_url and model together")

    @property
    def chosen(self) -> Literal["history", "openai", "factory"]:
        """The kind, "auto" resolved."""
        if self.kind != "auto":
            return self.kind
        return "factory" if self.factory else "openai" if self.base_url else "history"


@attrs.frozen(kw_only=True)
class TurnsConfig:
    """How many conversations are answered at once."""

    concurrency_max: int = setting(64, whole(1, 100_000), doc="Turns that run side by side, over all lanes.")
    per_user_max: int = setting(
        0, whole(0, 100_000), doc="Of these, turns of one person, over all their lanes; 0: as many as there are."
    )
    approval_timeout_s: int = setting(
        3600, whole(0), doc="Seconds after which a turn's question to its people counts as refused; 0: never."
    )


@attrs.frozen(kw_only=True)
class BudgetsConfig:
    """What one person may use within a window, over all lanes of a platform; 0 is no limit. Commands are free."""

    window_s: float = setting(3600.0, number(above=0), doc="How far back it is counted, seconds; a restart forgets.")
    turns: int = setting(0, whole(0), doc="Turns.")
    tokens: int = setting(0, whole(0), doc="Tokens, as the agent reports them.")
    cost_usd: float = setting(0.0, number(at_least=0), doc="Cost, as the agent estimates it, US dollars.")
    warn_at: float = setting(0.8, number(above=0), doc="From this share on the person is told, once a window.")
    over: Literal["warn", "slow", "block"] = setting(
        "warn",
        choice("warn", "slow", "block"),
        doc="When it is used up: they are only told, each turn waits, or their messages are refused and they are told.",
    )
    slow_s: float = setting(10.0, number(at_least=0), doc="How long each turn waits then, seconds.")


@attrs.frozen(kw_only=True)
class QueueConfig:
    """What happens to messages that arrive while a turn runs."""

    collapse: Literal["merge", "replace"] = setting(
        "merge",
        choice("merge", "replace"),
        doc='Follow-ups become one turn ("merge"), or the newest displaces the older, which is told ("replace").',
    )
    waiting_max: int = setting(
        WAITING_MAX, whole(1, WAITING_MAX), doc="Messages that may wait in one lane; more are refused (queue_full)."
    )
    album_window_ms: int = setting(
        800, whole(0, ALBUM_MS_MAX), doc="An album's turn starts when no further item came for so many milliseconds."
    )
    edit_running: Literal["ignore", "note", "turn"] = setting(
        "turn",
        choice("ignore", "note", "turn"),
        doc="An edit of a message that is being answered: nothing, a note to the next turn, or a turn of its own.",
    )
    edit_after: Literal["ignore", "note", "turn"] = setting(
        "note", choice("ignore", "note", "turn"), doc="The same of a message that has been answered."
    )
    busy: Literal["queue", "interrupt", "steer", "refuse"] = setting(
        "queue",
        choice("queue", "interrupt", "steer", "refuse"),
        doc='A busy lane\'s follow-up waits ("queue"), breaks the running turn off ("interrupt"), is handed to an '
        'agent that asks for it ("steer"; else it waits), or is refused ("refuse").',
    )


@attrs.frozen(kw_only=True)
class DeliveryConfig:
    """How hard a reply is tried, and what is recorded before it leaves."""

    separate_attempt: bool = setting(
        False,
        flag(),
        doc="Record each attempt in a commit of its own: one more commit per turn, no needless notice after a crash.",
    )
    max_age_s: int = setting(_DAY_S, whole(1), doc="A reply not sent after this many seconds is abandoned.")
    attempts_ambiguous_max: int = setting(
        3,
        whole(1, 100),
        doc="Sends per part that may or may not have arrived, before it is abandoned; a reply whose first send was "
        "recorded together with its turn is bounded by max_age_s alone.",
    )
    partial: Literal["withhold", "send"] = setting(
        "withhold",
        choice("withhold", "send"),
        doc="What a stopped or broken turn had streamed is kept in the conversation, and may be sent as well.",
    )


@attrs.frozen(kw_only=True)
class AdmissionConfig:
    """Which messages are let in."""

    dm_without_ids: Literal["refuse", "shared"] = setting(
        "refuse",
        choice("refuse", "shared"),
        doc='A direct message without any id is refused, or all such share one conversation ("shared").',
    )
    max_age_s: int = setting(
        0,
        whole(0),
        doc="A text that was sent longer ago than this, seconds, is taken in and dropped as stale; 0: none is.",
    )
    bot_exchanges_max: int = setting(
        8,
        whole(0, 1_000_000),
        doc="Messages of bots in a row that a conversation answers, until a person speaks or ten minutes pass without "
        "one; more are taken in and dropped. 0: bots are never answered.",
    )


@attrs.frozen(kw_only=True)
class StorageConfig:
    """The database, and what happens without it."""

    on_unavailable: Literal["refuse", "spool"] = setting(
        "refuse",
        choice("refuse", "spool"),
        doc="While the database can't be opened or written, messages are refused and people told "
        '("refuse"), or kept in a file of the home and answered later ("spool").',
    )


@attrs.frozen(kw_only=True)
class CommandsConfig:
    """Commands that people type."""

    prefix: str = setting(
        "/",
        text(matching=r"\S{1,8}", says="one to eight characters without space"),
        doc="What a command begins with, where its adapter doesn't say otherwise.",
    )
    max_age_s: int = setting(
        600,
        whole(0),
        doc="A command that was sent longer ago than this, seconds, is answered and does nothing; 0: each acts.",
    )
    stop_suspends: bool = setting(
        True, flag(), doc="/stop also ends the session's context; the next message starts fresh."
    )


@attrs.frozen(kw_only=True)
class StopConfig:
    """How the gateway stops."""

    drain_s: float = setting(
        30.0, number(at_least=0), doc="Running turns get this many seconds to end; 0: they are interrupted at once."
    )
    on_restart: Literal["exec", "exit"] = setting(
        "exec",
        choice("exec", "exit"),
        doc='After /restart, `serve` starts its own program anew in the same process ("exec"), or exits with 75 for a '
        'supervisor to start it ("exit").',
    )
    watchdog_s: float = setting(
        30.0,
        number(above=0),
        doc="Seconds after the drain until a stuck stop is broken off: stacks are logged, `serve` exits with 3.",
    )


@attrs.frozen(kw_only=True)
class PrivacyConfig:
    """What an agent gets to know of people."""

    redact_pii: bool = setting(
        False,
        flag(),
        doc="Ids of people and chats stand as pseudonyms in the prompt, on platforms whose agents can do without them.",
    )


@attrs.frozen
class AdapterConfig:
    """One ``[adapters.<name>]`` table: its options are checked by the class that its adapter hands in.

    ``name`` is the account's name in keys and logs, ``type`` the adapter's, ``options`` the other keys as written.
    """

    name: str
    type: str
    options: Mapping[str, object] = attrs.field(factory=dict, repr=False)  # may hold passwords

    def parse(self, options: builtins.type[T]) -> T:
        """Make the adapter's own settings class out of the options.

        Raises:
            ConfigError: as ``settings.build``, with keys under ``adapters.<name>``.

        """
        return build(options, self.options, at=f"adapters.{self.name}")


def _operators() -> Kind:
    listed = texts(matching=_OPERATOR, says='a list of "platform:id"')
    return attrs.evolve(listed, read=lambda line: [part.strip() for part in line.split(",")])


def _adapters() -> Kind:
    name_says = "lower-case letters, digits, _ and -"
    named = text(matching=_NAME, says=name_says)

    def check(value: object) -> object:
        if isinstance(value, tuple):
            if not all(isinstance(adapter, AdapterConfig) for adapter in value):
                raise ValueError
            return value
        if not isinstance(value, Mapping):
            raise ValueError  # noqa: TRY004  (settings turns it into a ConfigError)
        return tuple(_adapter(name, table, named) for name, table in value.items())

    return Kind("a table of tables", check)


def _adapter(name: str, table: object, named: Kind) -> AdapterConfig:
    key = f"adapters.{name}"
    try:
        named.check(name)
    except ValueError:
        raise ConfigError(key, f"the name must be {named.says}") from None
    if not isinstance(table, Mapping):
        raise ConfigError(key, "must be a table with a type")
    if "type" not in table:
        raise ConfigError(f"{key}.type", 'is missing; it names the kind of adapter, as in type = "irc"')
    if not isinstance(table["type"], str) or not table["type"]:
        raise ConfigError(f"{key}.type", "must be text that isn't empty")
    return AdapterConfig(name, str(table["type"]), {key: value for key, value in table.items() if key != "type"})


def _home_channels() -> Kind:
    def check(value: object) -> object:
        if isinstance(value, tuple):
            if not all(isinstance(home, HomeChannel) for home in value):
                raise ValueError
            return value
        if not isinstance(value, Mapping):
            raise ValueError  # noqa: TRY004  (settings turns it into a ConfigError)
        return tuple(_home(name, told) for name, told in value.items())

    return Kind("a table of platforms", check)


def _home(name: str, told: object) -> HomeChannel:
    key = f"home_channels.{name}"
    table = told if isinstance(told, Mapping) else {"chat_id": told}
    for unknown in table.keys() - {"chat_id", "name"}:
        raise ConfigError(f"{key}.{unknown}", "unknown key; a home channel has chat_id and name")
    chat_id, shown = table.get("chat_id"), table.get("name", "")
    if not isinstance(chat_id, str) or not chat_id or len(chat_id) > ID_CHARS_MAX:
        raise ConfigError(key, "must be a chat's id as text, or a table with chat_id")
    if not isinstance(shown, str):
        raise ConfigError(f"{key}.name", "must be text")
    try:
        return HomeChannel(Platform(name), str(chat_id), str(shown))
    except InvalidInputError as error:
        raise ConfigError(key, str(error)) from None


INERT: Final = frozenset({"session_reset", "default_reset_policy", "reset_by_type", "reset_by_platform"})
"""Timer settings of older configurations, whole tables of them: taken, and without any effect."""


def without_inert(values: Mapping[str, object]) -> tuple[dict[str, object], tuple[str, ...]]:
    """The settings that mean something, and the dotted keys of those that once did."""
    inert = [key for name in values if name in INERT for key in _dotted_leaves(name, values[name])]
    return {name: value for name, value in values.items() if name not in INERT}, tuple(sorted(inert))


def _dotted_leaves(at: str, value: object) -> list[str]:
    if not isinstance(value, Mapping) or not value:
        return [at]
    return [key for name, inner in value.items() for key in _dotted_leaves(f"{at}.{name}", inner)]


@attrs.frozen(kw_only=True)
class GatewayConfig:
    """The whole configuration of one gateway; without arguments, the defaults."""

    home: str = setting(
        "state", text(), doc="Folder of everything durable; a relative one counts from the working directory."
    )
    group_sessions_per_user: bool = setting(True, flag(), doc="In groups and channels each person has a session.")
    thread_sessions_per_user: bool = setting(False, flag(), doc="In threads too; else a thread is shared.")
    session_store_max_age_days: int = setting(
        0, whole(0, 36_500), doc="Entries unused for so many days are forgotten, their logs kept; 0: never."
    )
    write_sessions_json: bool = setting(True, flag(), doc="Mirror the sessions to sessions.json in the home.")
    agent: AgentConfig = setting(AgentConfig(), section(AgentConfig), doc="Who answers.")
    budgets: BudgetsConfig = setting(BudgetsConfig(), section(BudgetsConfig), doc="What people may use.")
    turns: TurnsConfig = setting(TurnsConfig(), section(TurnsConfig), doc="Turns at once.")
    queue: QueueConfig = setting(QueueConfig(), section(QueueConfig), doc="Busy lanes.")
    delivery: DeliveryConfig = setting(DeliveryConfig(), section(DeliveryConfig), doc="Replies.")
    admission: AdmissionConfig = setting(AdmissionConfig(), section(AdmissionConfig), doc="Who is let in.")
    commands: CommandsConfig = setting(CommandsConfig(), section(CommandsConfig), doc="Commands.")
    storage: StorageConfig = setting(StorageConfig(), section(StorageConfig), doc="The database.")
    stop: StopConfig = setting(StopConfig(), section(StopConfig), doc="Stopping.")
    privacy: PrivacyConfig = setting(PrivacyConfig(), section(PrivacyConfig), doc="What agents get to know.")
    home_channels: tuple[HomeChannel, ...] = setting(
        (),
        _home_channels(),
        doc="A table: each platform's chat for what nobody asked for at the moment, as its id or as {chat_id, name}.",
    )
    operators: tuple[str, ...] = setting(
        (),
        _operators(),
        doc="Who may use commands that concern everybody (/restart): platform and stable id of each, never a name.",
    )
    adapters: tuple[AdapterConfig, ...] = setting((), _adapters(), doc="Platforms, each an account.")


def parse_config(
    values: Mapping[str, object],
    environ: Mapping[str, str],
    inert: Callable[[tuple[str, ...]], object] = lambda _: None,
) -> GatewayConfig:
    """Make the configuration out of a parsed file and an environment.

    Args:
        values: what the TOML file holds; empty for none.
        environ: the environment, for ``${NAME}`` and for ``SERIATIM_…`` variables.
        inert: called once with the timer settings that were found, if any were: conversations don't end by time.

    Raises:
        ConfigError: the first thing that isn't understood, with its dotted key.

    """
    top = [*(field.name for field in attrs.fields(GatewayConfig)), *INERT]
    expanded = expand(values, environ)
    laid, without_effect = without_inert(overridden(expanded, environ, prefix=ENVIRONMENT_PREFIX, top=top))
    if without_effect:
        inert(without_effect)
    return build(GatewayConfig, laid, known=tuple(dotted_keys(GatewayConfig)))
