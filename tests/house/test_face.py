"""A package's face only hands names on."""

from __future__ import annotations

import ast
import importlib

import pytest

from tests.house.source import PACKAGE, Module, library

FACES = [module for module in library() if module.path.name == "__init__.py" and module.tree().body]
"""The packages that hand anything on."""

each_face = pytest.mark.parametrize("face", FACES, ids=lambda face: face.name)


@each_face
def test_a_face_only_hands_names_on(face: Module) -> None:
    """A face holds its docstring, imports of names and ``__all__``: no thought of its own."""
    strange = [
        f"{face.path.name}:{node.lineno} {type(node).__name__}"
        for number, node in enumerate(face.tree().body)
        if not (isinstance(node, ast.ImportFrom) or _is_all(node) or (number == 0 and _is_docstring(node)))
    ]

    assert strange == []


@each_face
def test_a_face_lists_its_names_in_order(face: Module) -> None:
    """``__all__`` is sorted as the linter sorts, has no name twice, and is what the face imports."""
    handed = _handed_on(face)

    assert handed == sorted(set(handed), key=lambda name: (not name.isupper(), name[0].islower(), name))
    assert set(handed) == _imported(face)


@each_face
def test_each_name_of_a_face_is_there(face: Module) -> None:
    """Each name that a face lists can be had from it."""
    package = importlib.import_module(face.name)

    assert [name for name in _handed_on(face) if not hasattr(package, name)] == []


def test_the_package_has_a_face() -> None:
    """The package itself hands something on."""
    assert PACKAGE in {face.name for face in FACES}


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _is_all(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__all__"]


def _handed_on(face: Module) -> list[str]:
    listed = [node.value for node in face.tree().body if isinstance(node, ast.Assign) and _is_all(node)]
    return [str(name) for value in listed for name in ast.literal_eval(value)]


def _imported(face: Module) -> set[str]:
    return {
        alias.asname or alias.name
        for node in face.tree().body
        if isinstance(node, ast.ImportFrom) and node.module != "__future__"
        for alias in node.names
    }
