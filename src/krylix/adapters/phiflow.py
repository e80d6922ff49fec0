"""krylix as the solver of PhiML and PhiFlow: their `Solve` as arguments of `krylix.linear_solve`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import ConvergenceError, linear_solve

__all__ = ["settings_of", "solve_linear"]


def settings_of(solve: Any) -> dict[str, Any]:
    """Keyword arguments of `krylix.linear_solve` for a `phiml.math.Solve`, or anything with its attributes.

    Args:
        solve: its method, rel_tol, abs_tol, max_iterations, preconditioner and rank_deficiency are read. Tolerances
            that are None are those of krylix: PhiML's own abs_tol of 1e-5 would accept small solutions at once.

    Returns:
        method, rtol, atol, max_iter, preconditioner and nullspace: None for a rank deficiency of 0, else "auto".

    Raises:
        ValueError: it has its own gradient solve; krylix uses the same settings for derivatives.

    Examples:
        >>> from types import SimpleNamespace
        >>> from krylix.adapters.phiflow import settings_of
        >>> settings_of(SimpleNamespace(method="CG", rel_tol=1e-6, max_iterations=50, rank_deficiency=0))
        {'method': 'CG', 'rtol': 1e-06, 'atol': 0.0, 'max_iter': 50, 'preconditioner': None, 'nullspace': None}
    """
    if getattr(solve, "_gradient_solve", None) is not None:
        raise ValueError("The Solve has a gradient_solve; krylix solves for derivatives as for x: leave it out.")
    rtol, atol, limit = (getattr(solve, name, None) for name in ("rel_tol", "abs_tol", "max_iterations"))
    return {
        "method": solve.method, "rtol": None if rtol is None else float(rtol), "atol": float(atol or 0),
        "max_iter": None if limit is None else int(limit), "preconditioner": getattr(solve, "preconditioner", None),
        "nullspace": None if getattr(solve, "rank_deficiency", None) == 0 else "auto",
    }  # fmt: skip


def solve_linear(f: Callable[..., Any], y: Any, solve: Any, *f_args: Any, **settings: Any) -> Any:
    """`phiml.math.solve_linear` with krylix: x with `f(x, *f_args) = y`.

    Args:
        f: linear or affine function of a tensor or field like y.
        y: tensor of PhiML on any of its libraries, or a field of PhiFlow with values in one tensor (a centred grid);
            its batch dimensions are independent systems.
        solve: a `phiml.math.Solve`, see `settings_of`; its x0 and preprocess_y are used, and failures of the types in
            `suppress` return the last x.
        *f_args: further arguments of f.
        **settings: further arguments of `krylix.linear_solve`, which override those of `solve`.

    Returns:
        x, a tensor or field as y, with derivatives with respect to y and data of f.

    Raises:
        NotConverged, Diverged: of krylix, unless suppressed by name.

    Cost: that of `linear_solve` with a function.

    Examples:
        >>> from phiml import math
        >>> from krylix.adapters.phiflow import solve_linear
        >>> y = math.wrap([6.0, 9.0, 3.0], math.spatial("x"))
        >>> x = solve_linear(lambda x: 3 * x, y, math.Solve("CG"))
        >>> x.numpy("x").round(3).tolist()
        [2.0, 3.0, 1.0]
    """
    from phiml import math

    y = y if solve.preprocess_y is None else solve.preprocess_y(y, *solve.preprocess_y_args)
    is_field = not isinstance(y, math.Tensor)
    shape = math.shape(y.values if is_field else y)
    dims = [*shape.batch, *shape.non_batch]

    def native(x: Any) -> Any:
        x = x if isinstance(x, math.Tensor) else x.values
        return math.expand(x, shape).native(shape.only(dims, reorder=True))

    def like_y(x: Any) -> Any:
        x = math.reshaped_tensor(x, dims, convert=False)
        return y.with_values(x) if is_field else x

    def function(x: Any) -> Any:
        return native(f(like_y(x), *f_args))

    keywords = {**settings_of(solve), "x0": None if solve.x0 is None else native(solve.x0), **settings}
    try:
        x = linear_solve(function, native(y), batch_ndim=shape.batch.rank, **keywords).x
    except ConvergenceError as error:
        if type(error).__name__ not in {kind.__name__ for kind in solve.suppress}:
            raise
        x = error.result.x
    return like_y(x)
