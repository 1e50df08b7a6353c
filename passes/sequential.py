"""``Sequential``: a pipeline, which is a pass that runs other passes in order, each one if the context enables it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from tilewright.graphir.module import IRModule
from tilewright.passes.base import Pass
from tilewright.passes.context import RUNNING, PassContext
from tilewright.passes.info import PassInfo
from tilewright.passes.properties import Order, check_order
from tilewright.passes.registry import get_pass, is_registered, list_passes, unknown_pass
from tilewright.tensorir.errors import ArgumentTypeError, PassError


class Sequential(Pass):
    """Run ``passes`` in order.

    A child runs if the context enables it (``PassContext.pass_enabled``), right after the passes in its ``required``,
    which run right after those that they require, and so on. Required passes run because another pass needs them:
    their own level and ``disabled_pass`` are ignored, and a pass that two others require runs for each of them. A
    required name refers to a pass of this pipeline (or of one around it), else to the registered one.

    The children of a pipeline inside a pipeline are enabled one by one as well, after the inner pipeline itself.

    If children state the properties that they require, provide and invalidate (``passes/properties.py``), their order
    is checked here, once; the combined properties are in the pipeline's own ``info``.

    Args:
        passes: the children.
        opt_level: the level from which an enclosing pipeline runs it.
        name: its name.
        required: names of the passes that an enclosing pipeline runs before it.
        given: the properties of input modules; None: all that a child requires and no child provides.

    Raises:
        TypeError: an element of ``passes`` is no pass.
        PassError: a child requires a property that modules do not have at that point.
    """

    passes: tuple[Pass, ...]
    _is_pipeline = True

    def __init__(
        self,
        passes: Sequence[Pass] | None = None,
        opt_level: int = 0,
        name: str = "sequential",
        required: Sequence[str] | None = (),
        given: Collection[str] | None = None,
    ) -> None:
        children = tuple(passes) if passes is not None else ()
        for child in children:
            found: object = child
            if isinstance(found, type) or not hasattr(found, "_is_pipeline"):
                hint = ""
                if isinstance(found, type) and issubclass(found, Pass):
                    hint = f"; make one by calling it: {found.__name__}()"
                raise ArgumentTypeError(f"pipeline {name!r}: expected passes, found {found!r}{hint}")
        self.passes = children
        self.given = given
        order = _checked_order(name, children, given)
        self.info = PassInfo(
            name,
            opt_level,
            required,  # type: ignore[arg-type]  # PassInfo takes any list of names
            pipeline=True,
            requires=order.requires,
            provides=order.provides,
            invalidates=order.invalidates,
        )
        self._named = _named_passes(self)

    def _transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        outer = RUNNING.pipeline
        known = {**outer, **self._named}
        _check_names(ctx, known)
        plan = _Plan(ctx, known)
        steps: list[Pass] = []
        for child in self.passes:
            if ctx.pass_enabled(child.info):
                if child._is_pipeline or child.info.required:
                    steps += plan.steps(child)
                else:
                    steps.append(child)
        RUNNING.pipeline = known
        try:
            for step in steps:
                mod = step(mod, ctx)
        finally:
            RUNNING.pipeline = outer
        return mod

    def __repr__(self) -> str:
        return f"Sequential([{', '.join(child.info.name for child in self.passes)}], name={self.info.name!r})"


def _checked_order(pipeline: str, children: Sequence[Pass], given: Collection[str] | None) -> Order:
    """Combine the properties of ``children`` and check their order.

    Raises:
        PassError: one of them requires a property that is missing.
    """
    steps = [info for child in children for info in _steps(child.info, children)]
    order = check_order(steps, given)
    if isinstance(order, Order):
        return order
    named = [info.name for info in steps]
    what = f"pipeline {pipeline!r}: pass {named[order.step]} requires {order.property!r}"
    if order.taken_by is not None:
        what += f", which pass {named[order.taken_by]} invalidates before it"
    if order.provided_by is not None:
        raise PassError(f"{what}; pass {named[order.provided_by]} provides it, and comes later")
    others = sorted(name for name in list_passes() if order.property in _provided(name))
    hint = f"; it is provided by {' or '.join(others)}" if others else ""
    raise PassError(what + hint)


def _steps(info: PassInfo, children: Sequence[Pass], waiting: tuple[str, ...] = ()) -> list[PassInfo]:
    """Return the passes that run for a child: those that it requires by name, and itself. A required pass that is not
    among ``children``, and may not be registered yet, is assumed to provide the properties that the child requires."""
    steps: list[PassInfo] = []
    for name in info.required:
        known = next((child.info for child in children if child.info.name == name), None)
        if known is None:
            steps.append(PassInfo(name, 0, provides=info.requires))
        elif name not in waiting:
            steps += _steps(known, children, (*waiting, info.name))
    return [*steps, info]


def _provided(name: str) -> frozenset[str]:
    """Return the properties that the registered pass of that name provides."""
    return get_pass(name).info.provides


class _Plan:
    """The passes that run for one child of a pipeline, determined before any of them runs."""

    def __init__(self, ctx: PassContext, known: Mapping[str, Pass]) -> None:
        self._ctx = ctx
        self._known = known

    def steps(self, child: Pass) -> list[Pass]:
        """Return the passes that ``child`` requires, transitively, and then ``child``.

        Raises:
            PassError: the requirements form a cycle.
            UnknownPassError: no pass has a required name.
        """
        steps: list[Pass] = []
        self._visit(child, (), steps.append)
        return steps

    def _visit(self, visited: Pass, waiting: tuple[Pass, ...], run: Callable[[Pass], None]) -> None:
        """Visit the passes that must run before ``visited``, then run it; the passes in ``waiting`` require it."""
        waiting = (*waiting, visited)
        for name in visited.info.required:
            required = self._find(name, visited)
            if any(_same(required, earlier) for earlier in waiting):
                raise PassError(f"the required passes form a cycle: {_cycle_text(waiting, required)}")
            self._visit(required, waiting, run)
        if visited._is_pipeline:
            assert isinstance(visited, Sequential)
            # Its children run when it runs; here it is only checked that they require no pass in ``waiting``.
            for child in visited.passes:
                if self._ctx.pass_enabled(child.info):
                    self._visit(child, waiting, _ignore)
        run(visited)

    def _find(self, name: str, needed_by: Pass) -> Pass:
        known = self._known.get(name)
        if known is not None:
            return known
        if not is_registered(name):
            raise unknown_pass(name, also_known=self._known, where=f"required of pass {needed_by.info.name}")
        return get_pass(name)


def _ignore(_: Pass) -> None:
    """Do nothing: visit passes without running them."""


def _same(a: Pass, b: Pass) -> bool:
    # A pipeline may have the name of a pass in it, so the name alone does not identify a pass.
    return a is b or (a.info.name == b.info.name and a._is_pipeline == b._is_pipeline)


def _cycle_text(waiting: tuple[Pass, ...], required: Pass) -> str:
    start = next(i for i, earlier in enumerate(waiting) if _same(required, earlier))
    return " -> ".join(step.info.name for step in (*waiting[start:], required))


def _named_passes(pipeline: Sequential) -> dict[str, Pass]:
    """Return the pipeline and all passes in it by name. Of those with the same name, a pass takes precedence over the
    pipeline that contains it, and an earlier pass over a later one."""
    named: dict[str, Pass] = {pipeline.info.name: pipeline}
    for child in reversed(pipeline.passes):
        if child._is_pipeline:
            assert isinstance(child, Sequential)
            named.update(child._named)
        else:
            named[child.info.name] = child
    return named


def _check_names(ctx: PassContext, known: Mapping[str, Pass]) -> None:
    """Reject names in the context that no pass has, since they would have no effect."""
    for what, names in (("disabled_pass", ctx.disabled_pass), ("required_pass", ctx.required_pass)):
        for name in names:
            if name not in known and not is_registered(name):
                raise unknown_pass(name, also_known=known, where=what)
