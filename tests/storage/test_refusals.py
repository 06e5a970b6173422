"""What the store and the home refuse to touch: one clear, typed error each, and nothing written."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from seriatim.errors import FormatUnsupportedError, HomeBusyError, HomeError, SeriatimError
from seriatim.storage import files
from seriatim.storage.home import DATABASE, LOCK, Home
from seriatim.storage.sqlite import SqliteStore
from seriatim.storage.sqlite_reader import SqliteReader
from seriatim.testing.store_contract import LANE, born, commit, kinds, part
from tests.storage.test_sqlite_faults import contents


def refusal(home: Path) -> SeriatimError:
    """Why the home isn't taken, by the way that a gateway takes it."""
    with pytest.raises(SeriatimError) as caught:
        Home.own(home)
    assert "\n" not in str(caught.value)
    return caught.value


def listing(folder: Path) -> dict[str, tuple[int, bytes | None]]:
    """Names, kinds and bytes."""
    return {
        path.name: (stat.S_IFMT(path.lstat().st_mode), path.read_bytes() if path.is_file() else None)
        for path in folder.iterdir()
    }


@pytest.mark.parametrize("kind", ["directory", "fifo", "socket", "device"])
def test_what_is_no_file_is_no_database(tmp_path: Path, kind: str) -> None:
    """A folder, a pipe, a socket or a device in the database's place is refused at once, by home and by store."""
    place = tmp_path / DATABASE
    match kind:
        case "directory":
            place.mkdir()
        case "fifo":
            os.mkfifo(place)
        case "socket":
            os.mknod(place, stat.S_IFSOCK | 0o600)
        case _:
            place.symlink_to("/dev/null")
    before = listing(tmp_path)
    assert isinstance(error := refusal(tmp_path), HomeError)
    assert "not a file" in str(error)
    for opener in (SqliteStore, SqliteReader):
        with pytest.raises(HomeError):
            opener(place)
    assert listing(tmp_path) == before


@pytest.mark.parametrize(("version", "direction"), [(99, "upgrade"), (0, "no path"), (-3, "no path")])
def test_formats_that_no_step_leads_on_from(tmp_path: Path, version: int, direction: str) -> None:
    """A newer file asks for a newer program; one too old says that no path leads on. Byte for byte untouched."""
    SqliteStore(tmp_path / DATABASE).close()
    connection = sqlite3.connect(tmp_path / DATABASE)
    connection.executescript(f"PRAGMA user_version = {version}; PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    before = contents(tmp_path)
    error = refusal(tmp_path)
    assert isinstance(error, FormatUnsupportedError)
    assert error.direction == direction
    assert str(version) in str(error)
    assert contents(tmp_path) == before


def test_looking_at_a_foreign_database_leaves_nothing_beside_it(tmp_path: Path) -> None:
    """Another program's database in WAL mode gets no file of SQLite's put beside it."""
    connection = sqlite3.connect(tmp_path / DATABASE)
    connection.executescript("PRAGMA journal_mode = WAL; PRAGMA application_id = 77; CREATE TABLE t(x)")
    connection.close()
    before = listing(tmp_path)
    assert isinstance(refusal(tmp_path), FormatUnsupportedError)
    assert listing(tmp_path) == before
    assert sorted(before) == [DATABASE]


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "9p", "fuse.sshfs"])
@pytest.mark.parametrize("made", [False, True])
def test_a_network_file_system_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, made: bool
) -> None:
    """Where another machine serves the files neither home nor store is opened; a reader may look."""
    if made:
        SqliteStore(tmp_path / DATABASE).close()
    before = listing(tmp_path)
    mount = psutil.disk_partitions(all=True)[0]._replace(mountpoint=str(tmp_path), fstype=kind)
    monkeypatch.setattr(psutil, "disk_partitions", lambda **_: [mount])
    assert isinstance(error := refusal(tmp_path), HomeError)
    assert kind in str(error)
    assert isinstance(refusal(tmp_path / "deeper" / "home"), HomeError)
    with pytest.raises(HomeError, match="network"):
        SqliteStore(tmp_path / DATABASE)
    assert listing(tmp_path) == before
    if made:
        SqliteReader(tmp_path / DATABASE).close()


def test_the_nearest_mount_tells_the_file_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """The innermost mount counts, the later of two at one place; a name that merely begins alike doesn't."""
    mount = psutil.disk_partitions(all=True)[0]
    found = [("/", "ext4"), ("/data", "nfs"), ("/data/local", "ext3"), ("/data/local", "xfs"), ("/da", "cifs")]
    mounts = [mount._replace(mountpoint=point, fstype=kind) for point, kind in found]
    monkeypatch.setattr(psutil, "disk_partitions", lambda **_: mounts)
    asked = ("/data/local/home", "/data/localhome", "/database", "/da/x", "/")
    assert [files.file_system_of(Path(path)) for path in asked] == ["xfs", "nfs", "ext4", "cifs", "ext4"]


def test_this_machine_s_own_file_system_is_known(tmp_path: Path) -> None:
    """The real table of mounts has an answer for a real folder, and it isn't the network."""
    assert files.file_system_of(tmp_path) not in {"", *files.NETWORK}


def test_what_others_may_read_is_mended(tmp_path: Path) -> None:
    """Home, lock, database and WAL that came with a loose mode are for the owner's eyes after opening."""
    home = tmp_path / "home"
    home.mkdir()
    first = Home.own(home)
    store = SqliteStore(first.database)
    store.commit([born()])
    wal = (home / "state.db-wal").read_bytes()
    store.close()
    first.close(clean=False)
    (home / "state.db-wal").write_bytes(wal[:0])
    home.chmod(0o755)
    for name in (DATABASE, LOCK, "state.db-wal"):
        (home / name).chmod(0o644)
    again = Home.own(home)
    SqliteStore(again.database).close()
    again.close(clean=False)
    assert {path.name: oct(path.stat().st_mode & 0o777) for path in (home, *home.iterdir())} == {
        "home": "0o700", DATABASE: "0o600", LOCK: "0o600",
    }  # fmt: skip


def test_a_folder_that_holds_other_things_keeps_its_mode(tmp_path: Path) -> None:
    """A project's folder isn't closed to others because a home was put there; if others may write it, it is refused."""
    (tmp_path / "project.txt").touch()
    tmp_path.chmod(0o777)
    before = listing(tmp_path)
    assert isinstance(error := refusal(tmp_path), HomeError)
    assert "others may write" in str(error)
    assert listing(tmp_path) == before
    tmp_path.chmod(0o755)
    Home.own(tmp_path).close(clean=False)
    assert oct(tmp_path.stat().st_mode & 0o777) == "0o755"


def test_a_file_of_someone_else_is_not_mended_but_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the mode can't be changed the error names the file and what to do."""
    SqliteStore(tmp_path / DATABASE).close()
    (tmp_path / DATABASE).chmod(0o666)

    def denied(path: Path, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", denied)
    with pytest.raises(HomeError, match="chmod 600"):
        SqliteStore(tmp_path / DATABASE)


CHILD = """
import sys
from seriatim.errors import HomeBusyError
from seriatim.storage.home import Home
from seriatim.storage.sqlite_reader import SqliteReader
from seriatim.testing.store_contract import LANE
for _ in range(100):
    try:
        Home.own(sys.argv[1])
    except HomeBusyError as error:
        assert sys.argv[2] in str(error), error
    else:
        sys.exit("taken")
    reader = SqliteReader(sys.argv[1] + "/state.db")
    assert len(reader.read(LANE)) > 0
    reader.close()
"""


def test_a_second_process_is_told_and_may_read_a_hundred_times(tmp_path: Path) -> None:
    """Another process that tries to own the home is told who does, and its readers disturb nothing (B91)."""
    home = Home.own(tmp_path)
    store = SqliteStore(home.database)
    store.commit([born()])
    with subprocess.Popen([sys.executable, "-c", CHILD, str(tmp_path), str(os.getpid())]) as child:
        head, epoch = 1, store.epoch
        while child.poll() is None:
            assert kinds(store.commit([commit(f"c{head}", part(LANE, head))])) == ["Durable"]
            head += 1
        assert child.returncode == 0
    assert store.epoch == epoch
    assert len(store.reader().read(LANE)) == head
    store.close()
    home.close(clean=False)
    assert HomeBusyError.repeatable


def test_a_forked_child_leaves_lock_and_files_alone(tmp_path: Path) -> None:
    """A child that inherits home and store can neither write nor unlock, and its end changes no byte of the owner's."""
    home = Home.own(tmp_path)
    store = SqliteStore(home.database)
    store.commit([born()])
    before = listing(tmp_path)
    child = os.fork()
    if child == 0:
        try:
            lost = kinds(store.commit([commit("c", part(LANE, 1))])) == ["OwnershipLostError"]
            store.close()
            home.close(clean=True)
            del store, home
            os._exit(0 if lost else 2)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert listing(tmp_path) == before
    probe = "import sys; from seriatim.storage.home import Home; Home.own(sys.argv[1])"
    busy = subprocess.run([sys.executable, "-c", probe, str(tmp_path)], capture_output=True, text=True, check=False)
    assert f"process {os.getpid()}" in busy.stderr
    assert kinds(store.commit([commit("d", part(LANE, 1))])) == ["Durable"]
    store.close()
    home.close(clean=False)
