"""Names to implementations: built-in, third-party, unknown and unloadable."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from specla.core import registry as module
from specla.core.registry import Registry
from specla.errors import OptionError

GROUP = "specla.tests"


class Point:
    """What importlib.metadata gives for an installed entry point."""

    def __init__(self, name: str, load: Callable[[], Any], dist: str | None = "foreign") -> None:
        self.name, self.load, self.value = name, load, f"{name}_module:Thing"
        self.dist = None if dist is None else type("Dist", (), {"name": dist})()


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def install(*points: Any) -> None:
        def entry_points(*, group: str) -> list[Any]:
            assert group == GROUP
            return list(points)

        monkeypatch.setattr(module, "entry_points", entry_points)

    return install


def failing() -> Any:
    raise ImportError("no module named gpu")


def test_builtin() -> None:
    things: Registry[str] = Registry("thing", GROUP)
    calls = []
    things.register("b", lambda: calls.append("b") or "loaded b")
    things.register("a", lambda: "loaded a")
    assert things.names() == ["a", "b"]
    assert not calls, "nothing is loaded before it is asked for"
    assert things.get("b") == "loaded b"
    assert things.origin("a") == "specla"
    with pytest.raises(ValueError, match="'a' is registered twice"):
        things.register("a", lambda: "")
    assert things.get("a") == "loaded a"


def test_third_party(install: Callable[..., None]) -> None:
    things: Registry[str] = Registry("thing", GROUP)
    things.register("own", lambda: "own")
    install(Point("zeta", lambda: "z"), Point("alpha", lambda: "a", dist=None))
    assert things.names() == ["own", "alpha", "zeta"]
    assert things.get("zeta") == "z"
    assert things.origin("zeta") == "foreign"
    assert things.origin("alpha") == "alpha_module:Thing"


def test_a_package_cannot_replace_a_builtin(install: Callable[..., None]) -> None:
    things: Registry[str] = Registry("thing", GROUP)
    things.register("own", lambda: "own")
    install(Point("own", failing))
    assert things.get("own") == "own"
    assert things.origin("own") == "specla"
    assert things.names() == ["own"]


def test_unknown_names_what_is_known(install: Callable[..., None]) -> None:
    things: Registry[str] = Registry("thing", GROUP)
    things.register("own", lambda: "own")
    install(Point("other", lambda: "o"))
    for ask in (things.get, things.origin):
        with pytest.raises(OptionError, match=r"^unknown thing 'nope'; known: own, other$"):
            ask("nope")


@pytest.mark.parametrize("error", [ImportError("no module\nnamed gpu"), RuntimeError("boom")])
def test_unloadable(install: Callable[..., None], error: Exception) -> None:
    def load() -> Any:
        raise error

    things: Registry[str] = Registry("thing", GROUP)
    install(Point("bad", load))
    with pytest.raises(OptionError) as caught:
        things.get("bad")
    message = str(caught.value)
    assert "thing 'bad' from foreign can't be loaded" in message
    assert type(error).__name__ in message
    assert caught.value.__cause__ is error


def test_real_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    things: Registry[Any] = Registry("thing", GROUP)
    monkeypatch.setattr(
        module,
        "entry_points",
        lambda *, group: [
            EntryPoint("ok", "collections:OrderedDict", group),
            EntryPoint("gone", "specla_no_such_module:x", group),
        ],
    )
    assert things.get("ok").__name__ == "OrderedDict"
    with pytest.raises(OptionError, match="ModuleNotFoundError"):
        things.get("gone")


def test_backends() -> None:
    from specla.backends import backends, create_backend
    from specla.backends.base import Backend

    assert "numpy" in backends.names()
    assert isinstance(create_backend("numpy"), Backend)
    assert create_backend("auto").name in backends.names()
    with pytest.raises(OptionError, match="unknown backend 'cray'"):
        create_backend("cray")
