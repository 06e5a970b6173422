"""The repository speaks of the project alone, and says what a newcomer needs."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.house.source import ROOT, repository_files, wings

# Written so that this file doesn't hold what it looks for.
FOREIGN = {
    "a path of somebody's machine": re.compile(r"(?<![\w.])/(?:wor[k]|roo[t]|hom[e]/\w+|User[s])/"),
    "a package registry's host": re.compile(
        r"pypi\.or[g]|pythonhosted\.or[g]|npmjs\.(?:or[g]|co[m])|deb\.debian\.or[g]|proxy\.golang\.or[g]"
    ),
}
NAMED_FILE = re.compile(r"`((?:[\w.-]+/)*[\w.-]+\.(?:py|toml|cfg|md)|(?:[\w.-]+/)+)`")


@pytest.mark.parametrize("what", FOREIGN)
def test_nothing_foreign_is_mentioned(what: str) -> None:
    """No file names a path of the machine that it was written on, or a registry."""
    found = [
        f"{file.relative_to(ROOT)}: {hit[0]}"
        for file in repository_files()
        if not file.is_symlink()
        for hit in FOREIGN[what].finditer(file.read_bytes().decode(errors="replace"))
    ]

    assert found == []


@pytest.mark.parametrize("name", ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "LICENSE", "Makefile", ".ci/run"])
def test_what_a_newcomer_looks_for_is_there(name: str) -> None:
    """The files that people and CI look for by name are there and not empty."""
    assert (ROOT / name).stat().st_size > 200


def test_the_two_commands_are_the_makefile_s() -> None:
    """The commands that the README gives are targets of the Makefile."""
    readme, makefile = (ROOT / "README.md").read_text(), (ROOT / "Makefile").read_text()
    told = {
        indented or quoted
        for indented, quoted in re.findall(r"^ {4}make ([a-z-]+)|`make ([a-z-]+)`", readme, re.MULTILINE)
    }

    assert {"run", "test"} <= told
    assert told <= set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))


@pytest.mark.parametrize("page", ["README.md", "ARCHITECTURE.md"])
def test_each_file_that_a_page_names_is_there(page: str) -> None:
    """A file or folder that a page names in code type exists, so that the page can't fall behind a rename."""
    told = set(NAMED_FILE.findall((ROOT / page).read_text()))
    made_at_run_time = {"seriatim.toml", "state/"}

    assert sorted(name for name in told - made_at_run_time if not (ROOT / name).exists()) == []


def test_architecture_names_each_layer() -> None:
    """ARCHITECTURE.md has a place for each root folder."""
    page = (ROOT / "ARCHITECTURE.md").read_text()

    assert [name for name in wings() if f"`{name}/`" not in page] == []


def test_the_changelog_knows_the_version() -> None:
    """CHANGELOG.md opens with what is unreleased or with the version that pyproject.toml has."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    first = re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)

    assert first is not None
    assert first[1] in {"Unreleased", version}
