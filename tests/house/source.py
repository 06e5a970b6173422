"""What the house rules look at: the repository's files, its modules and what they import."""

from __future__ import annotations

import ast
import configparser
import subprocess
from functools import cache
from pathlib import Path

import attrs

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "seriatim"
NOT_INSTALLED = frozenset({"tests", "benchmarks"})
COMPOSITION_ROOT = frozenset(
    {"__init__", "__main__", "cli", "configfile", "gateway", "mainloop", "opening", "parts", "stopping"}
    | {"undelivered_command"}
)
"""The modules of ``seriatim/`` that may know every layer, since they put them together."""


def mapping() -> dict[str, str]:
    """Package to folder, as ``setup.cfg`` has it."""
    lines = _setup()["package_dir"].split("\n")
    return {name.strip(): folder.strip() for name, _, folder in (line.partition("=") for line in lines if line)}


def packages() -> list[str]:
    """The packages that ``setup.cfg`` lists."""
    return _setup()["packages"].split()


def _setup() -> configparser.SectionProxy:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    return setup["options"]


def wings() -> dict[str, Path]:
    """The root folders that are mapped below the package: name to folder."""
    return {
        name.removeprefix(f"{PACKAGE}."): ROOT / folder
        for name, folder in mapping().items()
        if name.startswith(f"{PACKAGE}.") and name.count(".") == 1 and "/" not in folder
    }


def repository_files() -> list[Path]:
    """Every file that belongs to the repository (links too), tracked or about to be."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    files = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [file for file in files if file.is_symlink() or file.is_file()]


@attrs.frozen
class Import:
    """One imported name: ``module`` in full, the ``names`` taken from it (none for ``import module``), its place."""

    module: str
    names: tuple[str, ...]
    level: int
    place: str


@attrs.frozen
class Module:
    """One module of the library: its full name and its file in the root folders."""

    name: str
    path: Path

    @property
    def package(self) -> str:
        """The package that relative imports count from."""
        return self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]

    def tree(self) -> ast.Module:
        """Its syntax tree."""
        return ast.parse(self.path.read_text(encoding="utf-8"), str(self.path))

    def imports(self) -> tuple[Import, ...]:
        """Everything imported anywhere in it, for types only or inside a function included."""
        return _imports(self)


# Several rules look at every file's imports. They are kept, the trees are not: a million objects more would make each
# collection of the garbage in later tests slow.
@cache
def _imports(module: Module) -> tuple[Import, ...]:
    found: list[Import] = []
    file = module.path.relative_to(ROOT)
    for node in ast.walk(module.tree()):
        if isinstance(node, ast.Import):
            found += [Import(alias.name, (), 0, f"{file}:{node.lineno}") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = module.package.split(".")
            base = package[: len(package) - node.level + 1] if node.level else []
            full = ".".join([*base, *([node.module] if node.module else [])])
            names = tuple(alias.name for alias in node.names)
            found.append(Import(full, names, node.level, f"{file}:{node.lineno}"))
    return tuple(found)


@cache
def library() -> tuple[Module, ...]:
    """Every module that is installed, by its full name."""
    return tuple(
        Module(package if path.stem == "__init__" else f"{package}.{path.stem}", path)
        for package, folder in mapping().items()
        for path in sorted((ROOT / folder).glob("*.py"))
    )


@cache
def outside() -> tuple[Module, ...]:
    """Every module that isn't installed: tests and benchmarks."""
    return tuple(
        Module(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"), path)
        for folder in sorted(NOT_INSTALLED)
        for path in sorted((ROOT / folder).rglob("*.py"))
    )


def pure() -> list[Module]:
    """The rules: modules directly in ``seriatim/`` outside the composition root."""
    return [module for module in library() if module.package == PACKAGE and module.path.stem not in COMPOSITION_ROOT]
