"""Derivatives of a solve in PyTorch, against the dense inverse: every transformation, method and kind of operator.

`torch.linalg.solve` is no reference: its gradient of a forward derivative is wrong by a factor of two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cells import METHOD_NAMES
from frameworks import lazy
from krylix import linear_solve
from krylix.solvers import METHODS

torch = lazy("torch")
F = lazy("torch.func")
N = 4
COMPLEX = tuple(m for m in METHOD_NAMES if METHODS[m].takes_complex)
ROWS, COLS = np.nonzero(np.ones((N, N)))
Solve = Callable[..., Any]


def point(dtype: str = "float64") -> tuple[Any, Any, Any]:
    """b, edge weights and a shift: of a definite matrix that is a little unsymmetric where `matrix` makes it so."""
    kind = getattr(torch, dtype)
    numbers = torch.randn(3 * N, generator=torch.Generator().manual_seed(0), dtype=kind)
    return numbers[:N], 1 + 0.3 * numbers[N : 2 * N - 1], torch.tensor(1.3, dtype=kind)


def product(skew: float) -> Callable[..., Any]:
    def A(x: Any, w: Any, c: Any) -> Any:
        d = w * (x[..., 1:] - x[..., :-1])
        zero = torch.zeros_like(d[..., :1])
        image = c * x + torch.cat([-d, zero], -1) + torch.cat([zero, d], -1)
        return image + skew * torch.cat([w * x[..., 1:], zero], -1)

    return A


def matrix(skew: float, w: Any, c: Any) -> Any:
    return F.vmap(lambda e: product(skew)(e, w, c))(torch.eye(N, dtype=w.dtype)).mT


def dense_inverse(skew: float) -> Solve:
    return lambda b, w, c: (torch.linalg.inv(matrix(skew, w, c)) @ b[..., None])[..., 0]


def skew_of(method: str) -> float:
    return 0.0 if METHODS[method].needs_symmetry else 0.4


def solver(method: str, kind: str) -> Solve:
    """x(b, w, c) by krylix."""
    skew, A = skew_of(method), product(skew_of(method))
    settings = {"method": method, "rtol": 1e-13, "on_failure": "status"}
    if METHODS[method].takes_preconditioner and kind != "function":
        settings["preconditioner"] = "jacobi"
    makers: dict[str, Solve] = {
        "function": lambda b, w, c: linear_solve(lambda x: A(x, w, c), b, **settings),
        "args": lambda b, w, c: linear_solve(A, b, args=(w, c), **settings),
        "dense": lambda b, w, c: linear_solve(matrix(skew, w, c), b, **settings),
        "csr": lambda b, w, c: linear_solve(
            torch.sparse_csr_tensor(
                N * torch.arange(N + 1), torch.tensor(COLS), matrix(skew, w, c).reshape(-1), (N, N)
            ),
            b,
            **settings,
        ),
        "coo": lambda b, w, c: linear_solve(
            torch.sparse_coo_tensor(torch.tensor(np.stack([ROWS, COLS])), matrix(skew, w, c).reshape(-1), (N, N)),
            b,
            **settings,
        ),
    }
    return lambda b, w, c: makers[kind](b, w, c).x


def cubes(x: Any) -> Any:
    return (x**3).sum()


def batched(b: Any) -> Any:
    return torch.stack([b, 1 - b, 2 * b])


TRANSFORMS: dict[str, Callable[[Solve], Solve]] = {
    "grad": lambda S: F.grad(lambda *p: cubes(S(*p)), (0, 1, 2)),
    "jvp": lambda S: lambda *p: F.jvp(lambda *q: S(*q), p, p)[1],
    "vjp": lambda S: lambda *p: F.vjp(S, *p)[1](p[0]),
    "hessian": lambda S: F.hessian(lambda *p: cubes(S(*p)), (0, 1, 2)),
    "jacrev of jacfwd": lambda S: F.jacrev(F.jacfwd(lambda *p: cubes(S(*p)), 1), 1),
    "jacfwd of jacfwd": lambda S: F.jacfwd(F.jacfwd(lambda *p: cubes(S(*p)), 1), 1),
    "jacrev of jacrev": lambda S: F.jacrev(F.jacrev(lambda *p: cubes(S(*p)), 1), 1),
    "grad of jvp": lambda S: lambda b, w, c: F.grad(
        lambda w: F.jvp(lambda v: cubes(S(b, v, c)), (w,), (torch.ones_like(w),))[1]
    )(w),
    "third order": lambda S: lambda b, w, c: F.grad(
        lambda w: F.grad(lambda w: F.grad(lambda w: cubes(S(b, w, c)))(w).sum())(w).sum()
    )(w),
    "vmap over b": lambda S: lambda b, w, c: F.vmap(S, (0, None, None))(batched(b), w, c),
    "vmap over A": lambda S: lambda b, w, c: F.vmap(S, (None, 0, None))(b, batched(w), c),
    "vmap over both": lambda S: lambda b, w, c: F.vmap(S, (1, 0, None))(batched(b).T, batched(w), c),
    "vmap of vmap": lambda S: lambda b, w, c: F.vmap(F.vmap(S, (0, None, None)), (None, 0, None))(
        batched(b), batched(w), c
    ),
    "vmap of grad": lambda S: lambda b, w, c: F.vmap(F.grad(lambda *p: cubes(S(*p)), (0, 1)), (0, 0, None))(
        batched(b), batched(w), c
    ),
    "grad of vmap": lambda S: lambda b, w, c: F.grad(
        lambda w: cubes(F.vmap(S, (0, None, None))(batched(b), w, c))
    )(w),
    "vmap of jvp": lambda S: lambda b, w, c: F.vmap(lambda t: F.jvp(lambda b: S(b, w, c), (b,), (t,))[1])(batched(b)),
}  # fmt: skip


def check(method: str, kind: str, transform: str) -> None:
    p = point()
    found = torch.utils._pytree.tree_leaves(TRANSFORMS[transform](solver(method, kind))(*p))
    wanted = torch.utils._pytree.tree_leaves(TRANSFORMS[transform](dense_inverse(skew_of(method)))(*p))
    assert len(found) == len(wanted) > 0
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-9)


# Each kind of matrix by each method, with each transformation and one of the two; the other pairs on demand.
METHODS_AND_KINDS = [(m, k) for k in ("function", "args", "dense") for m in ("biCG-stab(2)", "direct")]
TABLE = [
    pytest.param(m, k, t, marks=pytest.mark.slow if (i + i // 2 + j) % 2 else ())
    for i, (m, k) in enumerate(METHODS_AND_KINDS)
    for j, t in enumerate(TRANSFORMS)
]


@pytest.mark.parametrize(("method", "kind", "transform"), TABLE)
def test_every_transformation(method: str, kind: str, transform: str) -> None:
    check(method, kind, transform)


@pytest.mark.parametrize(
    ("kind", "transform"),
    [
        ("function", "hessian"),
        ("dense", "vmap over both"),
        pytest.param("function", "vmap over both", marks=pytest.mark.slow),
        pytest.param("dense", "hessian", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("method", METHOD_NAMES)
def test_every_method(method: str, kind: str, transform: str) -> None:
    if METHODS[method].couples_systems and transform.startswith("vmap"):
        with pytest.raises(ValueError, match=r"batch of matrices|same for all"):
            check(method, kind, transform)
        return
    check(method, kind, transform)


@pytest.mark.parametrize("method", COMPLEX)
def test_complex(method: str) -> None:
    p = tuple(v.requires_grad_() for v in point("complex128"))
    solve = dense_inverse(0.4 + 0.2j)
    hermitian = METHODS[method].needs_symmetry

    def system(w: Any, c: Any) -> Any:
        m = matrix(0.4 + 0.2j, w, c)
        if not hermitian:
            return m
        return m @ (m.mT if METHODS[method].needs_symmetric else m.mH)

    def found(b: Any, w: Any, c: Any) -> Any:
        return linear_solve(system(w, c), b, method=method, rtol=1e-13, on_failure="status").x

    def wanted(b: Any, w: Any, c: Any) -> Any:
        return solve(b, w, c) if not hermitian else (torch.linalg.inv(system(w, c)) @ b[:, None])[:, 0]

    for a, b in zip(*(torch.autograd.grad((f(*p).abs() ** 4).sum(), p) for f in (found, wanted)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-9)
    tangents = tuple(v.detach() * (1 + 1j) for v in p)
    forward = [F.jvp(f, tuple(v.detach() for v in p), tangents)[1] for f in (found, wanted)]
    torch.testing.assert_close(*forward, rtol=1e-8, atol=1e-9)


# Each kind of matrix with a method or two; the other pairs on demand.
QUICK = {("CG", "csr"), ("scipy-direct", "args"), ("GMRES", "coo"), ("scipy-direct", "dense"), ("CG", "function")}
BEFORE_A_MERGE = {("biCG-stab(2)", "args"), ("CG", "coo"), ("biCG-stab(2)", "dense"), ("biCG-stab(2)", "csr")}


def mark_of(method: str, kind: str) -> Any:
    if (method, kind) in QUICK:
        return ()
    return pytest.mark.merge if (method, kind) in BEFORE_A_MERGE else pytest.mark.slow


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        pytest.param(m, k, marks=mark_of(m, k))
        for k in ("function", "args", "dense", "csr", "coo")
        for m in ("CG", "biCG-stab(2)", "GMRES", "scipy-direct")
    ],
)
def test_autograd(method: str, kind: str) -> None:
    """Finite differences, by torch's own checks; torch makes sparse tensors of dual numbers nowhere, and of values only
    once differentiable.
    """
    p = tuple(v.requires_grad_() for v in point())
    forward = kind not in ("csr", "coo")
    solve = solver(method, kind)
    assert torch.autograd.gradcheck(solve, p, check_forward_ad=forward)
    if forward:
        assert torch.autograd.gradgradcheck(solve, p, check_fwd_over_rev=True)


@pytest.mark.parametrize("layout", ["to_sparse_coo", "to_sparse_csr"])
def test_gradient_of_a_sparse_tensor_stays_on_its_pattern(layout: str) -> None:
    b, w, c = point()
    m = getattr(matrix(0.4, w, c), layout)().requires_grad_()
    cubes(linear_solve(m, b, method="biCG-stab(2)", rtol=1e-13).x).backward()
    full = matrix(0.4, w, c).requires_grad_()
    cubes(torch.linalg.inv(full) @ b).backward()
    gradient = m.grad.coalesce() if layout == "to_sparse_coo" else m.grad
    on = full.detach() != 0
    assert gradient.layout == m.layout and len(gradient.values()) == int(on.sum()) < N * N
    torch.testing.assert_close(gradient.to_dense()[on], full.grad[on], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("layout", ["coo", "csr", "csc", "bsr"])
@pytest.mark.parametrize("method", ["GMRES", "direct", "scipy-direct"])
def test_second_derivatives_by_a_sparse_tensor(method: str, layout: str) -> None:
    """A penalty of the gradient, which PyTorch's own values of sparse tensors would drop; by the dense inverse."""
    b, w, c = point()
    full = matrix(0.4, w, c).detach()
    kept = full != 0

    def sparse(x: Any) -> Any:
        return x.to_sparse_bsr((1, 1)) if layout == "bsr" else getattr(x, f"to_sparse_{layout}")()

    def values(x: Any) -> Any:
        return (x.coalesce() if layout == "coo" else x).values().reshape(-1)

    m, dense = sparse(full).requires_grad_(), full.clone().requires_grad_()
    (first,) = torch.autograd.grad(cubes(linear_solve(m, b, method=method, rtol=1e-13).x), m, create_graph=True)
    (second,) = torch.autograd.grad((values(first) ** 2).sum(), m)
    (wanted,) = torch.autograd.grad(cubes(torch.linalg.inv(dense) @ b), dense, create_graph=True)
    (wanted_second,) = torch.autograd.grad((wanted[kept] ** 2).sum(), dense)
    assert first.layout == second.layout == m.layout
    order = kept.mT.nonzero().flip(1) if layout == "csc" else kept.nonzero()
    for found, exact in ((first, wanted), (second, wanted_second)):
        torch.testing.assert_close(values(found), exact[order[:, 0], order[:, 1]], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("convert", ["to_sparse_coo", "to_sparse_csr", "to_sparse_csc"])
def test_second_derivatives_by_a_dense_matrix_made_sparse(convert: str) -> None:
    b, w, c = point()

    def gradient(full: Any, solve: Callable[[Any], Any]) -> Any:
        (first,) = torch.autograd.grad(cubes(solve(full)), full, create_graph=True)
        return torch.autograd.grad((first**2 * (full.detach() != 0)).sum(), full)[0]

    full = matrix(0.4, w, c).detach().requires_grad_()
    found = gradient(full, lambda m: linear_solve(getattr(m, convert)(), b, method="GMRES", rtol=1e-13).x)
    wanted = gradient(full, lambda m: torch.linalg.inv(m) @ b)
    on = full.detach() != 0
    torch.testing.assert_close(found[on], wanted[on], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("make", ["coo", "csr", "csr of coo", "scaled"])
def test_second_derivatives_that_pytorch_drops_are_an_error(make: str) -> None:
    b, w, _ = point()
    places = torch.arange(N).expand(2, N)

    def loss(w: Any) -> Any:
        m = torch.sparse_coo_tensor(places, 4 + w[:1].expand(N), (N, N))
        values, starts = 4 + w[:1].expand(N), torch.arange(N + 1)
        m = {
            "coo": lambda: m,
            "csr": lambda: torch.sparse_csr_tensor(starts, starts[:N], values, (N, N)),
            "csr of coo": m.to_sparse_csr,
            "scaled": lambda: 2 * m,
        }[make]()
        return cubes(linear_solve(m, b, method="GMRES", rtol=1e-13).x)

    w = w.detach().requires_grad_()
    (plain,) = torch.autograd.grad(loss(w), w)
    assert plain[0] != 0
    with pytest.raises(RuntimeError, match="differentiates once only"):
        torch.autograd.grad(loss(w), w, create_graph=True)


@pytest.mark.parametrize("kind", ["dense", "function"])
def test_batches(kind: str) -> None:
    """Systems of a batch have their own derivatives, under vmap too."""
    generator = torch.Generator().manual_seed(1)
    m = torch.rand(2, 3, N, N, generator=generator, dtype=torch.float64) + 4 * torch.eye(N, dtype=torch.float64)
    b = torch.randn(2, 3, N, generator=generator, dtype=torch.float64)

    def found(m: Any, b: Any) -> Any:
        A = m if kind == "dense" else lambda x: (m @ x[..., None])[..., 0]
        M = "jacobi" if kind == "dense" else (lambda r: r / 4)
        ndim = 0 if kind == "dense" else 1
        return linear_solve(A, b, method="biCG-stab(2)", preconditioner=M, rtol=1e-13, batch_ndim=ndim).x

    def wanted(m: Any, b: Any) -> Any:
        return (torch.linalg.inv(m) @ b[..., None])[..., 0]

    for axes in ((0, 0), (None, 0), (0, None)):
        args = tuple(v if axis == 0 else v[0] for v, axis in zip((m, b), axes, strict=True))
        results = [F.vmap(f, axes)(*args) for f in (found, wanted)]
        torch.testing.assert_close(*results, rtol=1e-9, atol=1e-10)
    losses = [F.grad(lambda m, b, f=f: cubes(F.vmap(f)(m, b)), (0, 1))(m, b) for f in (found, wanted)]
    for a, b in zip(*losses, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-9)


def test_what_is_closed_over_is_found() -> None:
    """Parameters of modules, tensors computed before, and an affine part."""
    b, w, _ = point()
    layer = torch.nn.Linear(N, N, bias=False).double()
    constant, factor = torch.ones(N, dtype=torch.float64, requires_grad=True), w[0].clone().requires_grad_()
    square = factor**2
    x = linear_solve(lambda x: 4 * x + square * layer(x) + constant, b, method="GMRES", rtol=1e-13).x
    sources = (layer.weight, constant, factor)
    found = torch.autograd.grad(cubes(x), sources, retain_graph=True)
    m = 4 * torch.eye(N) + square * layer.weight
    wanted = torch.autograd.grad(cubes(torch.linalg.inv(m) @ (b - constant)), sources)
    for a, w in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, w, rtol=1e-9, atol=1e-10)


def test_a_tensor_behind_a_rule_of_the_user() -> None:
    """Its derivatives are those of the rule, not of what this computes: an error, as a closure hides them."""

    class Hidden(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, w: Any, outside: bool) -> Any:
            ctx.save_for_backward(w)
            return torch.from_numpy(w.detach().numpy() * x.detach().numpy()) if outside else w * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * ctx.saved_tensors[0], None, None

    w = torch.tensor(2.0, requires_grad=True)
    for outside in (False, True):
        with pytest.raises(RuntimeError, match="Pass this tensor on"):
            linear_solve(lambda x, outside=outside: Hidden.apply(x, w, outside), torch.ones(3), method="CG")
    with torch.no_grad():
        assert linear_solve(lambda x: Hidden.apply(x, w, True), torch.ones(3), method="CG").converged


def test_a_sparse_tensor_inside_a_function_is_an_error() -> None:
    b, w, c = point()
    m = matrix(0.4, w, c).to_sparse_csr().requires_grad_()
    for solve in (
        lambda b: linear_solve(lambda x: m @ x, b, method="GMRES"),
        lambda b: linear_solve(lambda x, m: m @ x, b, method="GMRES", args=(m,)),
    ):
        with pytest.raises(RuntimeError, match="Give the sparse tensor itself"):
            solve(b.clone().requires_grad_())


@pytest.mark.parametrize("method", ["CG", "MINRES", "biCG-stab(2)"])
def test_singular_with_null_vectors(method: str) -> None:
    """x = A^+ b; with methods that take A for unsymmetric the gradient may have a part that no consistent b sees."""
    off = torch.diag(torch.ones(N - 1, dtype=torch.float64), 1)
    path = torch.diag(torch.tensor([1.0, 2, 2, 1], dtype=torch.float64)) - off - off.T
    inverse, b = torch.linalg.pinv(path), torch.tensor([1.0, 0, 0, -1], dtype=torch.float64)

    def solve(b: Any) -> Any:
        return linear_solve(path, b, method=method, nullspace="constant", rtol=1e-12).x

    found, wanted = (F.grad(lambda b, f=f: cubes(f(b)))(b) for f in (solve, lambda b: inverse @ b))
    if not METHODS[method].needs_symmetry:
        found = found - found.mean()
    torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-9)


def test_tiny_and_huge_cotangents_in_single_precision() -> None:
    b, w, c = point("float32")
    wanted = torch.autograd.functional.jacobian(lambda w: dense_inverse(0.4)(b, w, c).sum(), w)
    w.requires_grad_()
    x = linear_solve(matrix(0.4, w, c), b, method="biCG-stab(2)", atol=1e-3).x
    for scale in (1e-20, 1e20):
        (found,) = torch.autograd.grad(x.sum(), w, torch.tensor(scale), retain_graph=True)
        torch.testing.assert_close(found / scale, wanted, rtol=1e-2, atol=1e-3)


def test_a_failing_backward_solve_names_itself() -> None:
    singular = torch.tensor([[1.0, 0, 0], [0, 1, 2], [0, 2, 4]])  # whose null vector is not found
    b = torch.tensor([1.0, 1, 2], requires_grad=True)
    x = linear_solve(lambda x: singular @ x, b, method="biCG-stab(2)", max_iter=20).x
    with pytest.raises(RuntimeError, match="the backward solve of biCG-stab"):
        x.sum().backward()
    with pytest.raises(RuntimeError, match="the solve for a derivative of biCG-stab"):
        F.jvp(lambda b: linear_solve(singular, b, method="biCG-stab(2)").x, (b.detach(),), (torch.ones(3),))


def test_modes_without_derivatives() -> None:
    b, w, c = (v.requires_grad_() for v in point())
    solve = solver("CG", "function")
    with torch.no_grad():
        assert not solve(b, w, c).requires_grad
    with torch.inference_mode():
        assert solve(b, w, c).is_inference()
    assert not solve(b.detach(), w.detach(), c.detach()).requires_grad
    several = linear_solve(matrix(0.0, w, c), b, method="CG", max_iter=(2, 20), on_failure="status").x
    with pytest.raises(RuntimeError, match="several limits"):
        several.sum().backward()


@pytest.mark.parametrize("kind", ["function", "args", "dense"])
@pytest.mark.parametrize("method", ["GMRES", "direct", "scipy-direct"])
def test_many_cotangents_at_once(method: str, kind: str) -> None:
    """Autograd's own mapping, which is not that of torch.func: first, second and nested derivatives."""
    functional = torch.autograd.functional
    p = tuple(v.requires_grad_() for v in point())
    solve, exact = solver(method, kind), dense_inverse(skew_of(method))

    def derivatives(f: Solve, vectorize: bool) -> tuple[Any, ...]:
        def jacobian(b: Any) -> Any:
            return functional.jacobian(lambda b: f(b, *p[1:]) ** 2, b, vectorize=vectorize, create_graph=True)

        first = functional.jacobian(f, p, vectorize=vectorize)
        second = functional.hessian(lambda *p: (f(*p) ** 3).sum(), p, vectorize=vectorize)
        rows = torch.autograd.grad(f(*p), p, torch.eye(N, dtype=p[0].dtype), is_grads_batched=True, create_graph=True)
        penalties = torch.autograd.grad(sum((r**2).sum() for r in rows), p)
        return first, *second, penalties, functional.jacobian(jacobian, p[0], vectorize=vectorize)

    for found, wanted in zip(derivatives(solve, True), derivatives(exact, False), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-9)


def test_compile() -> None:
    """A graph break, with right results forward and backward."""
    p = tuple(v.requires_grad_() for v in point())
    losses = [cubes(torch.compile(solver("CG", "function"), backend="eager")(*p)), cubes(dense_inverse(0.0)(*p))]
    for a, b in zip(*(torch.autograd.grad(loss, p) for loss in losses), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("method", ["CG", "GMRES"])
def test_evaluations_of_the_function(method: str) -> None:
    """1 at zero, 1 at ones (what it closes over may have made it singular since), 1 that is recorded, which everything
    else replays, and 1 that shows that the record is right.
    """
    b, w, c = (v.requires_grad_() for v in point())
    calls = [0]

    def A(x: Any) -> Any:
        calls[0] += 1
        return product(0.0)(x, w, c)

    linear_solve(A, b, method=method)  # seen once: the test of linearity is done
    calls[0] = 0
    result = linear_solve(A, b, method=method)
    assert calls == [4]
    cubes(result.x).backward()
    assert calls == [4]


def test_a_function_taken_for_symmetric() -> None:
    """CG may converge although A is not; the transposed system is solved all the same."""
    skew = 0.01 * (torch.eye(N, dtype=torch.float64).roll(1, 0) - torch.eye(N, dtype=torch.float64).roll(1, 1))
    A, b = 4 * torch.eye(N) + skew, point()[0].requires_grad_()
    weights = torch.arange(N, dtype=torch.float64)
    x = linear_solve(lambda x: (A @ x[..., None])[..., 0], b, method="CG", rtol=1e-10).x
    (found,) = torch.autograd.grad(weights @ x, b)
    torch.testing.assert_close(found, torch.linalg.inv(A).T @ weights, rtol=1e-9, atol=1e-10)
