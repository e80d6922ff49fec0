"""A layer of PyTorch that solves a linear system: `Solve`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .. import linear_solve
from ..matrix_entries import entries_of
from ..sparse import COO, is_function
from .functions import solve, solve_sparse


class Solve(torch.nn.Module):
    """The layer `b -> x` with `A x = b`, where A is a matrix or a function, trainable or fixed.

    Args:
        A: a dense matrix `(n, n)` or a sparse one, of PyTorch, SciPy or krylix, whose values become the parameter
            `values`; or a linear function of a tensor, `A(x, *args)`: a module, whose parameters are trained, or any
            other callable.
        args: of a function, tensors that it is called with after x; they become parameters.
        trainable: are the values, or args, parameters? Otherwise they are buffers. A module decides for itself.
        batch_ndim: of a function, how many leading axes of b are independent systems: 1, as in the layers of PyTorch.
            For a matrix all axes but the last one are.
        dtype: of the values; if None that of a tensor, and PyTorch's default, float32, for data of NumPy.
        device: of the values; if None that of a tensor, else PyTorch's default.
        **settings: of `krylix.linear_solve`: method, preconditioner, rtol, ...

    The input is `(*batch, n)` for a matrix, `(*batch, *shape)` for a function; the output has its shape. Gradients
    reach b, values, args and the parameters of modules. `torch.compile(fullgraph=True)` and `torch.export` keep a layer
    with a matrix in one graph, with the settings that `krylix.torch.solve` allows there.

    Attributes:
        values: a dense matrix `(n, n)`, or the entries `(nnz,)` of a sparse one, at `indices` `(2, nnz)`.

    Raises:
        TypeError: A is none of these.
        ValueError: A is not one square matrix; args were given for a matrix; in a call, b does not fit.
        NotConverged, Diverged: in a call, forward or backward, as of `linear_solve`.

    Cost: that of `linear_solve` in each call, because A may have changed; the pattern of a sparse matrix is read once.

    Examples:
        >>> import torch, krylix.torch
        >>> layer = krylix.torch.Solve(4 * torch.eye(3), method="CG")
        >>> layer(torch.ones(2, 3)).sum().backward()
        >>> layer.values.grad.diagonal()
        tensor([-0.1250, -0.1250, -0.1250])
    """

    def __init__(
        self, A: Any, *, args: Sequence[torch.Tensor] = (), trainable: bool = True, batch_ndim: int = 1,
        dtype: torch.dtype | None = None, device: Any = None, **settings: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        self.settings = settings
        self.function: Any = None
        self.batch_ndim = batch_ndim
        self._pattern: tuple[torch.Tensor, tuple[int, torch.dtype], COO] | None = None
        if is_function(A):
            self.function = A
            self._names = [f"arg{i}" for i in range(len(args))]
            for name, value in zip(self._names, args, strict=True):
                tensor = value if isinstance(value, torch.Tensor) else _in_default_precision(torch.as_tensor(value))
                self._keep(name, tensor, trainable, dtype, device)
            return
        if args:
            raise ValueError(
                f"{len(args)} args were given for a matrix; expected them with a function A(x, *args) only."
            )
        values, indices, n = _parts(A)
        self._keep("values", values, trainable, dtype, device)
        self.register_buffer("indices", None if indices is None else indices.to(self.values.device))
        self.n = n

    def _keep(self, name: str, value: torch.Tensor, trainable: bool, dtype: torch.dtype | None, device: Any) -> None:
        value = value.detach().clone().to(device=device, dtype=dtype)
        if trainable:
            self.register_parameter(name, torch.nn.Parameter(value))
        else:
            self.register_buffer(name, value)

    def forward(self, b: torch.Tensor) -> torch.Tensor:
        """x, in the shape of b."""
        if self.function is not None:
            if b.ndim <= self.batch_ndim:
                raise ValueError(
                    f"b has the shape {tuple(b.shape)}; expected (*batch, *shape), {self.batch_ndim} batch axes before "
                    "those of one system. For one system give b[None], or make the layer with batch_ndim=0."
                )
            args = tuple(getattr(self, name) for name in self._names)
            x: torch.Tensor = linear_solve(self.function, b, args=args, batch_ndim=self.batch_ndim, **self.settings).x
            return x
        if b.ndim == 0 or b.shape[-1] != self.n:
            raise ValueError(f"b has the shape {tuple(b.shape)}; expected (*batch, {self.n}).")
        if self.indices is None:
            return solve(self.values, b, axis=-1, **self.settings)
        if torch.compiler.is_compiling():
            return solve_sparse(self.indices, self.values, b, axis=-1, **self.settings)
        x = linear_solve(self._matrix(), b, axis=-1, **self.settings).x
        return x

    def _matrix(self) -> Any:
        """The matrix; its pattern is kept for as long as the indices are the same tensor, unchanged."""
        indices = self.indices
        key = (0 if indices.is_inference() else indices._version, self.values.dtype)
        if self._pattern is None or self._pattern[0] is not indices or self._pattern[1] != key:
            self._pattern = (indices, key, COO(self.values.detach(), indices[0], indices[1], (self.n, self.n)))
        return self._pattern[2].with_values(self.values)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pattern": None}

    def extra_repr(self) -> str:
        """Settings between the brackets of `print`."""
        size = [] if self.function is not None else [f"n={self.n}"]
        size += [] if self.function is not None or self.indices is None else [f"nnz={self.values.shape[0]}"]
        return ", ".join([*size, *(f"{name}={value!r}" for name, value in self.settings.items())])


def _parts(A: Any) -> tuple[torch.Tensor, torch.Tensor | None, int]:
    """The values of a matrix, the indices of a sparse one in the order of rows, and n."""
    if not isinstance(A, torch.Tensor):
        values, rows, columns, n = entries_of(A)
        indices = None if rows is None else torch.stack([torch.as_tensor(rows), torch.as_tensor(columns)])
        return _in_default_precision(torch.as_tensor(values)), indices, n
    if A.ndim != 2 or A.shape[0] != A.shape[1]:
        raise ValueError(f"A has the shape {tuple(A.shape)}; expected one square matrix (n, n).")
    if A.layout == torch.strided:
        return A, None, A.shape[0]
    coo = A.detach().to_sparse_coo().coalesce()
    return coo.values(), coo.indices(), A.shape[0]


def _in_default_precision(x: torch.Tensor) -> torch.Tensor:
    dtype = torch.get_default_dtype()
    return x.to(dtype.to_complex() if x.dtype.is_complex else dtype)
