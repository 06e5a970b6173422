"""Real chat servers for tests: started on a free port of 127.0.0.1, by pid, stopped at the end.

A missing program skips the test and says so; with SERIATIM_REQUIRE_SERVERS=1 (as in CI) it fails instead.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

PACKAGES = {"ngircd": "ngircd", "inspircd": "inspircd", "openssl": "openssl"}
"""Program -> Debian package."""

START_S_MAX = 30.0

_NGIRCD = """[Global]
 Name = irc.local
 Info = test
 Listen = 127.0.0.1
 Ports = {port}
 MotdPhrase = hi
 ServerUID = {uid}
 ServerGID = {gid}
 {password}
[Limits]
 MaxConnections = 1000
 MaxConnectionsIP = 0
 MaxPenaltyTime = 0
 MaxJoins = 0
 MaxNickLength = 30
 PingTimeout = {ping_s}
[Options]
 DNS = no
 Ident = no
 PAM = no
"""

_INSPIRCD = """<server name="irc.local" description="t" network="Local">
<admin name="a" nick="a" email="a@a">
<bind address="127.0.0.1" port="{port}" type="clients">
<connect name="main" allow="*" maxchans="1000" timeout="20" pingfreq="2m" hardsendq="4M" softsendq="8192" recvq="256K"
 threshold="100000" commandrate="1000000" fakelag="no" localmax="1000" globalmax="1000" resolvehostnames="no"
 useident="no">
<channels users="1000" opers="1000">
<pid file="{run}/pid">
<log method="file" type="* -USERINPUT -USEROUTPUT" level="default" target="{run}/inspircd.log">
<path configdir="{run}" datadir="{run}" logdir="{run}" runtimedir="{run}">
<performance somaxconn="128" softlimit="1000">
<limits maxnick="30" maxchan="64" maxmodes="20" maxident="20" maxhost="64" maxquit="255" maxtopic="307" maxkick="255"
 maxreal="128" maxaway="200" maxline="512">
<module name="cap">
<module name="ircv3">
<module name="ircv3_msgid">
<module name="ircv3_servertime">
<module name="ircv3_echomessage">
<module name="ircv3_batch">
<module name="ircv3_ctctags">
"""


class Server:
    """One server process; ``kill`` and ``start`` let a test take it away and bring it back on the same port."""

    def __init__(self, program: Path, arguments: list[str], port: int, log: Path) -> None:
        self.host = "127.0.0.1"
        self.port = port
        self.log = log
        self._command = [str(program), *arguments]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and return once it takes connections."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        until = time.monotonic() + START_S_MAX
        while True:
            with suppress(OSError), socket.create_connection((self.host, self.port), timeout=1):
                return
            if self._process.poll() is not None or time.monotonic() > until:
                self.kill()
                pytest.fail(f"{self._command[0]} doesn't start:\n{self.log.read_text(errors='replace')}")
            time.sleep(0.01)  # a foreign process gives no event to wait for

    def kill(self) -> None:
        """SIGKILL it, as a crash would, and wait until it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def server_program(name: str) -> Path:
    """Path of an installed server program; without it the calling test is skipped.

    With ``SERIATIM_REQUIRE_SERVERS=1`` the test fails instead, so that CI can't pass by skipping.
    """
    path = os.environ.get("PATH", os.defpath)
    found = shutil.which(name, path=f"{path}:/usr/sbin:/sbin")  # Debian keeps servers off a user's path
    if found is not None:
        return Path(found)
    reason = f"{name} isn't installed (Debian package {PACKAGES[name]})"
    if os.environ.get("SERIATIM_REQUIRE_SERVERS") == "1":
        pytest.fail(f"{reason}, and SERIATIM_REQUIRE_SERVERS=1")
    pytest.skip(reason)


@contextmanager
def _running(server: Server) -> Iterator[Server]:
    try:
        server.start()
        yield server
    finally:
        server.kill()


@contextmanager
def ngircd_server(folder: Path, *, password: str = "", ping_s: int = 120) -> Iterator[Server]:
    """ngIRCd, without IRCv3: no ids, no echo, CASEMAPPING=ascii; an over-long line ends the connection."""
    program, port = server_program("ngircd"), free_port()
    config = folder / "ngircd.conf"
    line = f"Password = {password}" if password else ""
    config.write_text(_NGIRCD.format(port=port, password=line, ping_s=ping_s, uid=os.getuid(), gid=os.getgid()))
    with _running(Server(program, ["-n", "-f", str(config)], port, folder / "ngircd.log")) as server:
        yield server


@contextmanager
def ngircd(folder: Path) -> Iterator[tuple[str, int]]:
    """`ngircd_server` for those who only need its address."""
    with ngircd_server(folder) as server:
        yield server.host, server.port


@contextmanager
def inspircd_server(folder: Path) -> Iterator[Server]:
    """InspIRCd with message ids, server time and echo; CASEMAPPING=rfc1459; it takes about a second to register."""
    program, port = server_program("inspircd"), free_port()
    config = folder / "inspircd.conf"
    config.write_text(_INSPIRCD.format(port=port, run=folder))
    root = ["--runasroot"] if os.getuid() == 0 else []
    arguments = ["--nofork", *root, f"--config={config}"]
    with _running(Server(program, arguments, port, folder / "inspircd.out")) as server:
        yield server
