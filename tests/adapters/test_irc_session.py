"""The IRC session: lines in, answers and news out, without a socket."""

from __future__ import annotations

import pytest
from attrs import evolve

from seriatim.adapters import irc_wire as wire
from seriatim.adapters.irc_options import IrcOptions
from seriatim.adapters.irc_session import IrcSession, News, Said
from seriatim.errors import ConfigError
from seriatim.settings import build

OPTIONS = IrcOptions(host="irc.local", nick="Bot", channels=("#a", "#b key"))


def feed(session: IrcSession, *lines: str) -> tuple[list[str], list[News]]:
    """Feed lines; returns what to write, and the news."""
    replies: list[str] = []
    news: list[News] = []
    for text in lines:
        line = wire.parse(text.encode())
        assert line is not None
        fed = session.feed(line)
        replies += [reply.decode().rstrip() for reply in fed.replies]
        news += [fed.news] if fed.news else []
    return replies, news


def registered(options: IrcOptions = OPTIONS) -> IrcSession:
    """A session that the server let in."""
    session = IrcSession(options)
    feed(session, ":s 001 Bot :Welcome Bot!~bot@host.example", ":s 005 Bot CASEMAPPING=rfc1459 STATUSMSG=@+ :x")
    feed(session, ":s 376 Bot :End")
    return session


def heard(session: IrcSession, *lines: str) -> list[str]:
    """The texts that people are found to have said."""
    return [news.text for news in feed(session, *lines)[1] if isinstance(news, Said)]


def test_the_conversation_opens_with_capabilities_and_names() -> None:
    """PASS comes first and only when there is one; then CAP, so that registration waits for it."""
    hello = [line.decode().split(" ")[0] for line in IrcSession(OPTIONS).hello()]
    assert hello == ["CAP", "NICK", "USER"]
    assert IrcSession(evolve(OPTIONS, password="pw")).hello()[0] == b"PASS :pw\r\n"


def test_only_wanted_capabilities_are_asked_for() -> None:
    """The offer may come in several lines; what we know of it is asked for at its end."""
    session = IrcSession(OPTIONS)
    assert feed(session, ":s CAP * LS * :sasl=PLAIN server-time")[0] == []
    assert feed(session, ":s CAP * LS :echo-message away-notify")[0] == ["CAP REQ :server-time echo-message"]
    assert feed(session, ":s CAP * ACK :server-time echo-message")[0] == ["CAP :END"]
    assert session.caps == {"server-time", "echo-message"}
    assert feed(IrcSession(OPTIONS), ":s CAP * LS :sasl")[0] == ["CAP :END"]
    assert feed(IrcSession(OPTIONS), ":s CAP * NAK :server-time")[0] == ["CAP :END"]


def test_channels_are_joined_once_the_server_has_said_its_rules() -> None:
    """Joining waits for the end of the greeting, with each channel's key."""
    session = IrcSession(OPTIONS)
    assert feed(session, ":s 001 Bot :hi")[0] == []
    assert feed(session, ":s 422 Bot :no motd")[0] == ["JOIN :#a", "JOIN #b :key"]
    assert session.asked == {"#a", "#b"}
    feed(session, ":Bot!u@h JOIN #A", ":s 475 Bot #b :bad key")
    assert session.settled
    assert session.is_joined("#a")
    assert not session.is_joined("#b")
    assert [line.decode() for line in session.amends()] == ["JOIN #b :key\r\n"]


def test_a_taken_nick_leads_to_the_next_and_back() -> None:
    """Each refusal tries the next nick; when the holder leaves or renames, the wanted one is asked for at once."""
    session = IrcSession(OPTIONS)
    assert feed(session, ":s 433 * Bot :in use")[0] == ["NICK :Bot_"]
    assert feed(session, ":s 433 * Bot_ :in use")[0] == ["NICK :Bot__"]
    feed(session, ":s 001 Bot__ :hi", ":s 376 Bot__ :end")
    assert b"NICK :Bot\r\n" in session.amends()
    assert feed(session, ":bot!x@y QUIT :bye")[0] == ["NICK :Bot"]
    assert feed(session, ":s 433 Bot__ Bot :in use")[0] == []
    assert feed(session, ":Bot!x@y NICK :other")[0] == ["NICK :Bot"]
    feed(session, ":Bot__!u@h NICK :Bot")
    assert session.nick == "Bot"
    assert b"NICK :Bot\r\n" not in session.amends()


def test_when_no_nick_is_free_it_leaves_and_a_forbidden_one_is_the_operators() -> None:
    """All taken means later again; an erroneous nick is an error of the configuration."""
    session = IrcSession(OPTIONS)
    assert feed(session, *[":s 433 * Bot :in use"] * len(OPTIONS.nicks))[0][-1].startswith("QUIT")
    with pytest.raises(ConfigError, match=r"^nick: "):
        feed(IrcSession(OPTIONS), *[":s 432 * Bot :erroneous"] * len(OPTIONS.nicks))


def test_our_own_prefix_is_learnt_from_what_the_server_shows() -> None:
    """The room for text is worst-case until the server shows our address, and exact from then on."""
    session = IrcSession(OPTIONS)
    unknown = session.text_max("#a")
    feed(session, ":s 001 Bot :Welcome")
    assert session.text_max("#a") == unknown
    feed(session, ":Bot!~bot@host.example JOIN #a")
    frame = len(":Bot__!~bot@host.example PRIVMSG #a :\r\n")  # the longest nick that we may fall back to
    assert session.text_max("#a") == 512 - frame
    feed(session, ":s 396 Bot a.very.long.cloak.example :is now your host")
    assert session.text_max("#a") == 512 - frame - len("a.very.long.cloak.example") + len("host.example")


def test_what_is_no_persons_word_is_not_heard() -> None:
    """Notices, servers, our own words, CTCP requests and replayed history start nothing."""
    session = registered()
    feed(session, ":s BATCH +h chathistory #a", ":s BATCH +n netsplit x y")
    assert heard(
        session,
        ":ann!u@h NOTICE Bot :auto",
        ":irc.local PRIVMSG Bot :server",
        ":bot!u@h PRIVMSG #a :me",
        ":ann!u@h PRIVMSG Bot :\x01VERSION\x01",
        ":ann!u@h PRIVMSG Bot :\x01DCC SEND x\x01",
        "@batch=h :ann!u@h PRIVMSG #a :yesterday",
        "@batch=n :ann!u@h PRIVMSG #a :today",
    ) == ["today"]
    feed(session, ":s BATCH -h")
    assert heard(session, "@batch=h :ann!u@h PRIVMSG #a :now") == ["now"]


def test_an_action_is_text() -> None:
    """A /me is heard, marked as such."""
    [said] = feed(registered(), ":ann!u@h PRIVMSG #a :\x01ACTION waves\x01")[1]
    assert isinstance(said, Said)
    assert (said.text, said.action, said.channel) == ("waves", True, "#a")


def test_a_message_to_operators_stays_among_them() -> None:
    """A status message keeps its mark, so that the answer goes to the same few and not to the channel."""
    [said] = feed(registered(), ":ann!u@h PRIVMSG @#a :psst")[1]
    assert isinstance(said, Said)
    assert said.channel == "@#a"


def test_options_are_held_to_their_rules() -> None:
    """A wrong option is refused with its key; the password is never shown."""
    wrong: list[tuple[dict[str, object], str]] = [
        ({"nick": "two words"}, "adapters.x.nick"),
        ({"channels": ["no mark"]}, "adapters.x.channels"),
        ({"channels": ["#a,#b"]}, "adapters.x.channels"),
        ({"reconnect_min_ms": 9, "reconnect_max_ms": 3}, "adapters.x.reconnect_max_ms"),
        ({"realname": "a\r\nQUIT"}, "adapters.x.realname"),
    ]
    for values, key in wrong:
        with pytest.raises(ConfigError) as caught:
            build(IrcOptions, {"host": "h", "nick": "n", **values}, at="adapters.x")
        assert caught.value.key == key
    assert "hunter2" not in repr(IrcOptions(host="h", nick="n", password="hunter2"))


def test_a_wrong_channel_is_told_without_its_key() -> None:
    """By its place in the list; neither the error nor the options' repr has the key of any."""
    with pytest.raises(ConfigError) as caught:
        build(IrcOptions, {"host": "h", "nick": "n", "channels": ["#a", "b hunter2"]}, at="adapters.x")
    assert caught.value.reason == 'must be a list of "#name" or "#name key"; entry 2 isn\'t one'
    assert "hunter2" not in repr(IrcOptions(host="h", nick="n", channels=("#a hunter2",)))
