"""`logdet`: the log determinant of a matrix or a function, exact from factors or by stochastic Lanczos quadrature."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np

from ...backends import Array, choose_backend, real_dtype, without_compilers
from ...sparse import Matrix, Operator, UnsupportedOperation
from ..adapters.peers import with_peers_read
from ..linear_solve import linear_solve
from ..read.arguments import Request, vector_for
from ..read.system import read_system
from .factorised import Entries, FactorisedMatrix, HostMatrices, dense_singular, entries_of
from .lanczos import NOT_POSITIVE, checked, product, quadrature, signs, tridiagonal

LogdetMethod = Literal["auto", "exact", "lanczos"]
_NO_SECOND = (
    "The estimate of a log determinant by Lanczos' method has only a first derivative. For second ones use "
    "method='exact' with a dense matrix."
)


class LogDeterminant(NamedTuple):
    """The determinant of A as its sign and a logarithm, as NumPy's `slogdet` returns it.

    Attributes:
        sign: of modulus 1; 0 if A is singular. 1 for a positive definite A. In a compiled function a dense A counts as
            singular only where a pivot is zero.
        logabsdet: the log of the modulus, -inf if A is singular.
        standard_error: of `logabsdet`, where it is an estimate; 0 where it is exact.

    Examples:
        >>> import numpy as np, krylix
        >>> sign, log, error = krylix.logdet(np.diag([2.0, -4.0]))
        >>> float(sign), float(log.round(4)), float(error)
        (-1.0, 2.0794, 0.0)
    """

    sign: Array
    logabsdet: Array
    standard_error: Array


def logdet(
    A: Any,
    like: Any = None,
    *,
    args: Sequence[Any] = (),
    method: LogdetMethod = "auto",
    probes: int = 32,
    steps: int = 100,
    key: Any = 0,
) -> LogDeterminant:
    """Log determinant of A, in the library of A, with derivatives with respect to everything that A depends on.

    The derivative is `tr(A^-1 dA)`. It is exact from entries of the inverse if A has entries; that of an estimate is
    unbiased and takes one solve for each probe. `jax.grad`, autograd and `tf.GradientTape` support both, `jax.jvp` and
    `jax.jacfwd` only the exact one. For NumPy there is `PreparedSolver.logdet_gradient`.

    Args:
        A: as for `linear_solve`: dense or sparse, one matrix or a batch, or a function, which is traced if possible.
        like: for a function, an array of the shape that it accepts.
        args: further arguments of a function, `A(x, *args)`.
        method: "exact" uses LU factors: for a sparse matrix SuperLU's on the host, in compiled functions by a
            callback; for a dense one (and a small sparse one with traced values) the library's. "lanczos" is
            stochastic Lanczos quadrature, for a Hermitian positive definite A of which only products are available, or
            which is too large to factorise. "auto" is "exact" if the entries can be found, else "lanczos".
        probes: number of random vectors of an estimate, at least two. The standard error falls with the square root.
        steps: products with A for each probe. About the square root of the condition number of A is needed. The error
            of fewer steps is bounded, and the bound is part of the standard error.
        key: of the random vectors: an integer, a key of the library or a NumPy generator. The same integer or key
            gives the same vectors, which makes differences of log determinants more accurate.

    Returns:
        LogDeterminant: `(sign, logabsdet, standard_error)`, arrays without axes, or `(systems,)` for a batch.

    Raises:
        ValueError: an estimate finds that A is not Hermitian positive definite, in compiled functions at run time (NaN
            instead with `krylix.on_failure("nan")`), or an argument does not fit. Zero eigenvalues of a semi-definite A
            are found if its rows add up to zero, or a Ritz value is zero.
        UnsupportedOperation: method="exact" for an A whose entries cannot be found.
        TypeError: a function without `like`, or a second derivative that does not exist: for a sparse matrix of 257
            unknowns or more, and for an estimate.

    Cost: exact, one factorisation, and as much again for the derivative; estimated, `probes * steps` products with A,
    and for the derivative a solve for each probe.

    Source: Ubaru, Chen and Saad, SIAM J. Matrix Anal. Appl. 38 (2017); Erisman and Tinney, Comm. ACM 18 (1975), for
    the exact derivatives.

    Examples:
        >>> import numpy as np, scipy.sparse as sp, krylix
        >>> A = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(9, 9))  # its determinant is 10
        >>> sign, log, _ = krylix.logdet(A)
        >>> float(sign), round(float(np.exp(log)), 6)
        (1.0, 10.0)
        >>> estimate = krylix.logdet(lambda x: 3 * x, np.zeros(5), method="lanczos")
        >>> round(float(estimate.logabsdet / np.log(3)), 6)
        5.0
    """
    if like is None:
        like = without_compilers(vector_for)(A, args, "logdet")
    request = Request(A=A, b=like, args=args, nullspace=None)
    result: LogDeterminant = without_compilers(_logdet)(with_peers_read(request), method, probes, steps, key)
    return result


logdet._torchdynamo_disable = True  # type: ignore[attr-defined]  # see linear_solve


def _logdet(request: Request, *settings: Any) -> LogDeterminant:
    system = read_system(request, None)
    A = system.A
    if A.shape[0] != A.shape[1] or system.given is not None:
        raise ValueError(f"logdet got A of the shape {A.shape}; expected a square matrix.")
    return log_determinant(A, system.like, *settings)


def log_determinant(
    A: Operator,
    like: Array,
    method: str,
    probes: int,
    steps: int,
    key: Any,
    entries: Callable[[Operator], Entries] = entries_of,
) -> LogDeterminant:
    """See `logdet`; `like` is an array on the device of the random vectors, and `entries` returns those of A."""
    if method not in ("auto", "exact", "lanczos"):
        raise ValueError(f"method got {method!r}; expected 'auto', 'exact' or 'lanczos'.")
    for name, value, least in (("probes", probes, 2), ("steps", steps, 1)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise ValueError(f"{name} got {value!r}; expected an integer from {least} on.")
    if method != "lanczos":
        try:
            matrix, host = entries(A)
        except UnsupportedOperation:
            if method == "exact":
                raise
        else:
            sign, log = _dense_slogdet(matrix) if host is None else _sparse_slogdet(matrix, host)
            return LogDeterminant(sign, log, 0 * A.bk.constant(A.bk.abs(sign)))
    return _lanczos_estimate(A, like, probes, steps, key)


def _dense_slogdet(A: Matrix) -> tuple[Array, Array]:
    """Sign and log by the library, with derivatives of any order."""
    bk, dense = A.bk, A.dense()
    with np.errstate(all="ignore"):  # zeros and NaN are results
        sign, log = bk.xp.linalg.slogdet(dense)
        value = bk.concrete_value(lambda: bk.constant(dense)) if bk.compiled(dense) else dense
        # Where a compiled function computes A, this test would be a program of thousands of lines.
        singular = None if value is None else dense_singular(choose_backend(value), value)
        if singular is None:
            return sign, log
        nothing = 0 * bk.real(bk.sum(dense, (-2, -1)))
        infinite = bk.log(bk.where(singular, nothing, 1 + nothing))  # -inf, with a derivative of NaN
        return bk.where(singular, 0 * sign, sign), bk.where(singular, infinite, log)


def _sparse_slogdet(A: Matrix, host: HostMatrices) -> tuple[Array, Array]:
    """Sign and log from factors on the host.

    With t = tr(A^-1 dA), log |det A| changes by Re t, and the sign by i Im t times itself.
    """
    bk, dtype = A.bk, A.dtype
    sign, log = host.call(FactorisedMatrix.slogdet, (), [dtype, real_dtype(dtype)])
    if isinstance(host.values, np.ndarray) or not bk.has_derivatives:
        return sign, log

    def rule(inputs: Sequence[Array], outputs: Sequence[Array], cotangents: Sequence[Array | None]) -> list[Array]:
        inverse = replace(host, values=inputs[0]).inverse_entries(host.columns, host.rows)
        sign, (by_sign, by_log) = outputs[0], cotangents
        weight = bk.zeros_like(sign) if by_log is None else bk.astype(by_log, dtype)
        if dtype.kind == "c" and by_sign is not None:
            imaginary = bk.asarray(np.array(1j), dtype, like=sign)
            turn = bk.real(bk.conj(by_sign) * imaginary * sign)
            weight = weight - imaginary * bk.astype(turn, dtype)
        return [bk.conj(weight[..., None] * inverse)]

    sign, log = bk._with_rule(rule, [host.values], [sign, log], linear=True)
    return sign, log


def _lanczos_estimate(A: Operator, like: Array, probes: int, steps: int, key: Any) -> LogDeterminant:
    if A.systems is not None:
        raise UnsupportedOperation(f"logdet by Lanczos' method takes one matrix; got {A.systems}. Pass one at a time.")
    bk, n = A.bk, A.shape[0]
    A = A.as_container()
    z = signs(bk, probes, n, A.dtype, key, like)
    upper, lower, refused = quadrature(bk, tridiagonal(A, z, steps, False), bk.xp.log)
    log = bk.sum(upper) / probes
    left_out = log - bk.sum(lower) / probes
    variance = bk.sum((upper - log) ** 2) / (probes - 1)
    log = checked(A, log, refused, NOT_POSITIVE)
    log = _with_derivative(A, log, z)
    one = bk.asarray(np.array(1), A.dtype, like=z)
    return LogDeterminant(one, log, bk.sqrt(variance / probes + left_out**2))


def _with_derivative(A: Operator, log: Array, z: Array) -> Array:
    """Give `log` the derivative `Re <A^-1 z, dA z>`, averaged over the rows z."""
    bk = A.bk
    arrays, make = bk.flatten(A)
    floating = [i for i, a in enumerate(arrays) if bk.dtype(a).kind in "fc"]
    if not floating or not bk.has_derivatives:
        return log

    def rule(inputs: Sequence[Array], _: Sequence[Array], cotangents: Sequence[Array | None]) -> list[Array | None]:
        # All traced arrays are arguments, because a rule of JAX may not close over those of its program.
        *values, z = map(bk.constant, inputs)
        w = _inverse_product(make(values), z)

        def loss(*entries: Array) -> tuple[Array, list[Array]]:
            every = list(values)
            for i, a in zip(floating, entries, strict=True):
                every[i] = a
            return bk.sum(bk.real(bk.dot(w, product(make(every), z)))) / int(z.shape[0]), []

        (weight,) = cotangents
        entries = [values[i] for i in floating]
        pulled = bk._differentiated(loss, entries).pull(bk.zeros_like(log) if weight is None else weight)
        marked = bk._with_no_derivative([inputs[i] for i in floating], list(pulled), _NO_SECOND)
        gradients: list[Array | None] = [None] * len(inputs)
        for i, gradient in zip(floating, marked, strict=True):
            gradients[i] = gradient
        return gradients

    (log,) = bk._with_rule(rule, [*arrays, z], [log])
    return log


def _inverse_product(A: Operator, z: Array) -> Array:
    bk = A.bk
    if isinstance(A, Matrix):
        return bk.constant(linear_solve(A, z, axis=-1).x)
    b = bk.reshape(z, (int(z.shape[0]), *A.in_shape))
    return bk.reshape(bk.constant(linear_solve(lambda x: A(x), b, batch_ndim=1).x), tuple(z.shape))
