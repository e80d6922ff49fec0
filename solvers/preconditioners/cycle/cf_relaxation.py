"""Multigrid level that smooths coarse and fine unknowns in turns, for matrices that are not symmetric."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ....backends import Array, Backend
from ....sparse import Composed, Operator, storable
from ..target import suited


@storable("level of a cycle on coarse and fine unknowns")
@dataclass(eq=False, repr=False)
class CFRelaxationLevel(Composed):
    """Smooth, correct by the coarser levels, smooth again: an approximate inverse of `I - N`, coarse unknowns first.

    A smoothing is a Jacobi step on the coarse unknowns, then two on the fine ones, each with the newest values of the
    others: for two colours that is Gauss-Seidel. Steps before and after the correction are the same, since with an
    upwind matrix information has one direction. The transpose takes the transposed steps in the opposite order.

    Attributes:
        C: rows of N of the coarse unknowns, `(coarse, n)`; transposed if `transposed`.
        FC: rows of the fine ones, columns of the coarse ones; transposed if `transposed`.
        FF: likewise, columns of the fine ones.
        P: prolongation `(n, m)`, from the next coarser level.
        R: restriction, to it.
        coarse: approximate inverse of the next coarser matrix.
        A, tentative: the matrix and what an update makes P of, in the order of the unknowns of the whole.
        transposed: is this the transpose of such a level?

    Cost: 2 products with N, 2 more with FF, one with P and R each.

    Source: Trottenberg, Oosterlee and Schuller, Multigrid (2001), section A.7.1 for C/F relaxation, and 7.8 for upwind
    matrices.
    """

    parts: ClassVar[tuple[str, ...]] = ("A", "C", "FC", "FF", "P", "R", "coarse", "tentative")

    A: Operator
    C: Operator
    FC: Operator
    FF: Operator
    P: Operator
    R: Operator
    coarse: Operator
    tentative: Operator
    transposed: bool = False

    def __post_init__(self) -> None:
        k, n = self.C.shape[::-1] if self.transposed else self.C.shape
        fine, m = n - k, self.coarse.shape[0]
        found = self.FC.shape[:: -1 if self.transposed else 1], self.FF.shape, self.P.shape, self.R.shape
        if found != ((fine, k), (fine, fine), (n, m), (m, n)):
            raise ValueError(f"The parts of a level of coarse and fine unknowns do not fit each other: {found}.")
        super().__post_init__()

    def _settle(self) -> None:
        super()._settle()
        self.shape = (self.P.shape[0],) * 2

    @property
    def _coarse_unknowns(self) -> int:
        return int(self.FC.shape[0 if self.transposed else 1])

    def apply(self, x: Array) -> Array:
        return self._apply_transpose(x) if self.transposed else self._apply_plain(x)

    def _apply_plain(self, b: Array) -> Array:
        bk, k, materialize = self.bk, self._coarse_unknowns, self.bk.materialize
        bc, bf = b[:, :k], b[:, k:]
        xf = materialize(bf + self.FC.apply(bc))  # from x = 0 the first step on the coarse ones is x = b
        rf = materialize(self.FF.apply(xf))
        x = materialize(bk.concat([bc, xf + rf], axis=1))
        residual = bk.concat([self.C.apply(x), self.FF.apply(rf)], axis=1)
        x = materialize(x + self._from_below(residual))
        xc = materialize(bc + self.C.apply(x))
        g, xf = materialize(bf + self.FC.apply(xc)), x[:, k:]
        for _ in range(2):
            xf = materialize(g + self.FF.apply(xf))
        return bk.concat([xc, xf], axis=1)

    def _apply_transpose(self, b: Array) -> Array:
        bk, k, materialize = self.bk, self._coarse_unknowns, self.bk.materialize
        bc, bf = b[:, :k], b[:, k:]
        step = materialize(self.FF.apply(bf))
        xf = materialize(bf + step)
        xc = materialize(bc + self.FC.apply(xf))
        residual = self.C.apply(xc)  # but for what the fine unknowns leave to themselves
        residual = bk.concat([residual[:, :k], residual[:, k:] + self.FF.apply(step)], axis=1)
        x = materialize(bk.concat([xc, xf], axis=1) + self._from_below(residual))
        y, xf = materialize(b + self.C.apply(x[:, :k])), x[:, k:]
        for _ in range(2):
            xf = materialize(y[:, k:] + self.FF.apply(xf))
        return bk.concat([y[:, :k] + self.FC.apply(xf), xf], axis=1)

    def _from_below(self, residual: Array) -> Array:
        materialize = self.bk.materialize
        return self.P.apply(materialize(self.coarse.apply(materialize(self.R.apply(materialize(residual))))))

    def transpose(self) -> Operator:
        parts: dict[str, Any] = {name: getattr(self, name).T for name in self.parts if name != "tentative"}
        parts |= {"P": parts["R"], "R": parts["P"], "transposed": not self.transposed}
        return replace(self, **parts)

    def on_backend(self, bk: Backend, like: Array | None) -> Operator | None:
        matrices: dict[str, Any] = {name: suited(getattr(self, name), bk, like) for name in ("C", "FC", "FF", "P", "R")}
        return super(CFRelaxationLevel, replace(self, **matrices)).on_backend(bk, like)
