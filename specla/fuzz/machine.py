"""The Hypothesis machine that all levels share: draws operations, plays and records them."""

from __future__ import annotations

from typing import Any, ClassVar

from hypothesis.stateful import RuleBasedStateMachine

from specla.fuzz.log import Log
from specla.fuzz.world import Operation, Setup, World


class FuzzMachine(RuleBasedStateMachine):
    """Base class. An ``@initialize`` rule calls :meth:`begin`, each ``@rule`` :meth:`play`.

    backend: name of the one under test.  log: of the whole run.  operations: all kinds that the
    machine can play.
    """

    backend: ClassVar[str] = "numpy"
    log: ClassVar[Log] = Log()
    operations: ClassVar[tuple[type, ...]] = ()
    world: Any

    def begin(self, setup: Setup) -> None:
        """Build the world."""
        self._failed = False
        self.log.begin(setup)
        self._guarded(lambda: setattr(self, "world", setup.build(self.backend)))

    def play(self, operation: Operation) -> None:
        """Do and check one operation."""
        self.log.starts(operation)
        before = self.world.rounds
        self._guarded(lambda: operation.play(self.world))
        self.log.ended(self.world.rounds - before)

    def teardown(self) -> None:
        """The last checks, unless an earlier one failed."""
        world: World | None = getattr(self, "world", None)
        if world is not None and not self._failed:
            self._guarded(world.finish)

    def _guarded(self, act: Any) -> None:
        try:
            act()
        except BaseException as error:
            self._failed = True
            self.log.failed(error)
            raise
