"""The root folders are one import package, whichever way one looks at them."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.house.source import (
    NOT_INSTALLED,
    PACKAGE,
    ROOT,
    library,
    mapping,
    outside,
    packages,
    repository_files,
    wings,
)


def test_the_two_lists_agree() -> None:
    """Each package listed in setup.cfg has a folder there, and each folder a package."""
    assert sorted(packages()) == sorted(mapping())
    assert len(packages()) == len(set(packages()))


def test_each_mapped_folder_is_a_package() -> None:
    """Each mapped folder is a real folder in the repository with an __init__.py."""
    missing = [folder for folder in mapping().values() if not (ROOT / folder / "__init__.py").is_file()]
    assert missing == []
    assert [name for name, folder in wings().items() if folder.is_symlink()] == []


def test_each_wing_has_its_link() -> None:
    """Inside the package stands one relative link for each root folder, and no other link."""
    links = {path.name: path.readlink().as_posix() for path in (ROOT / PACKAGE).iterdir() if path.is_symlink()}

    assert links == {name: f"../{folder.name}" for name, folder in wings().items()}


def test_the_links_are_committed_as_links() -> None:
    """Git keeps the links as links, so that every clone has them."""
    listed = subprocess.run(
        ["git", "ls-files", "--stage", PACKAGE], cwd=ROOT, capture_output=True, text=True, check=True
    )
    links = {line.split("\t")[1] for line in listed.stdout.splitlines() if line.startswith("120000")}

    assert links == {f"{PACKAGE}/{name}" for name in wings()}


def test_every_python_folder_is_mapped() -> None:
    """A folder with Python in it is installed by the mapping, or is one of those that never are."""
    folders = {file.parent.relative_to(ROOT) for file in repository_files() if file.suffix == ".py"}
    stray = {
        folder
        for folder in folders
        if folder.as_posix() not in mapping().values() and folder.parts[:1] not in {(name,) for name in NOT_INSTALLED}
    }

    assert stray == set()


def test_the_library_never_imports_its_own_face() -> None:
    """Inside the library a name comes from the module that has it; the face is for others."""
    found = [seen.place for module in library() for seen in module.imports() if seen.module == PACKAGE]

    assert found == []


def test_a_root_folder_is_never_imported_by_its_bare_name() -> None:
    """``import actors`` works from the root by accident only; library, tests and benchmarks use the full name."""
    bare = set(wings())
    found = [
        seen.place
        for module in [*library(), *outside()]
        for seen in module.imports()
        if seen.module.partition(".")[0] in bare
    ]

    assert found == []


def test_relative_imports_stay_in_their_folder() -> None:
    """One dot at most: what lies elsewhere is named in full."""
    assert [seen.place for module in library() for seen in module.imports() if seen.level > 1] == []


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Names inside the wheel that is built from a copy of the repository without the links."""
    copy = tmp_path_factory.mktemp("copy")
    for file in repository_files():
        if not file.is_symlink():
            target = copy / file.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
    assert not (copy / PACKAGE / "actors").exists()
    build = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"
    out = tmp_path_factory.mktemp("wheel")
    built = subprocess.run(
        [sys.executable, "-c", build, str(out)], cwd=copy, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    with zipfile.ZipFile(next(out.glob("*.whl"))) as archive:
        return archive.namelist()


def test_the_wheel_installs_one_name(wheel: list[str]) -> None:
    """Nothing generic is installed: one package, and the note about it."""
    top = {name.partition("/")[0] for name in wheel}

    assert {name for name in top if not name.endswith(".dist-info")} == {PACKAGE}


def test_the_wheel_has_every_module(wheel: list[str]) -> None:
    """Each module of the library, and the mark that it is typed, is in a wheel built without the links."""
    expected = {f"{package.replace('.', '/')}/{path.name}" for package, path in _files()}

    assert {name for name in wheel if ".dist-info/" not in name} == expected | {f"{PACKAGE}/py.typed"}


def _files() -> list[tuple[str, Path]]:
    return [(module.package, module.path) for module in library()]
