"""`krylix.torch.solve` and `solve_sparse`: one node in graphs of `torch.compile` and `torch.export`; derivatives."""

import numpy as np
import pytest

import krylix
from cells import in_turn
from frameworks import lazy

torch, layers, custom_op = lazy("torch"), lazy("krylix.torch"), lazy("krylix.torch.custom_op")
N = 5
# rows, columns: a diagonal twice, and one beside it, in no order
ORDER = np.random.default_rng(0).permutation(3 * N)
INDICES = np.array([[*range(N)] * 3, [*range(N), *(np.arange(N) + 1) % N, *range(N)]])[:, ORDER]
# matrices' batch, vectors' batch
BATCHES = [((), ()), ((), (3,)), ((2,), ()), ((2,), (2,)), ((2,), (3, 2)), ((2, 3), (3,))]
SETTINGS = ("GMRES", None, 1e-13, 0.0, None, None, True, False)
INDUCTOR = (pytest.mark.slow, pytest.mark.filterwarnings("ignore"))  # importing it warns; it needs a C++ compiler
KINDS, DTYPES = ("dense", "sparse"), ("float64", "complex128")
kinds = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(autouse=True)
def compiled_for_one_test():
    yield
    torch._dynamo.reset()


def in_pairs(values, others):
    """(kind, value, other), so that any two of the three meet in one of them."""
    return [(kind, v, others[(i + j) % len(others)]) for i, v in enumerate(values) for j, kind in enumerate(KINDS)]


def solve_op(*args):
    return custom_op.solve_op(*args)


def numbers(*shape, dtype="float64"):
    rng = np.random.default_rng(0)
    values = rng.normal(size=shape) + (1j * rng.normal(size=shape) if dtype == "complex128" else 0)
    return torch.tensor(values)


def system(kind, batches=((), ()), dtype="float64"):
    """Values, indices, b."""
    of_matrices, of_vectors = batches
    b = numbers(*of_vectors, N, dtype=dtype)
    if kind == "dense":
        return numbers(*of_matrices, N, N, dtype=dtype) + 2 * N * torch.eye(N), None, b
    values = numbers(*of_matrices, 3 * N, dtype=dtype) / 3 + torch.tensor(2 * (ORDER < N))
    return values, torch.tensor(INDICES), b


def _each(values):
    if values.ndim == 1:
        return torch.zeros(N, N, dtype=values.dtype).index_put((*torch.tensor(INDICES),), values, accumulate=True)
    return torch.stack([_each(v) for v in values])


def solution(values, indices, b):
    return torch.linalg.solve(_each(values) if indices is not None else values, b[..., None])[..., 0]


def call(values, indices, b, **settings):
    if indices is None:
        return layers.solve(values, b, **settings)
    return layers.solve_sparse(indices, values, b, **settings)


@pytest.mark.parametrize(("kind", "batches", "dtype"), in_pairs(BATCHES, DTYPES), ids=str)
def test_operator(kind, batches, dtype):
    values, indices, b = system(kind, batches, dtype)
    x, converged = solve_op(values, indices, b, None, *SETTINGS)
    torch.testing.assert_close(x, solution(values, indices, b))
    assert converged.shape == x.shape[:-1] and converged.all()
    values.requires_grad_(), b.requires_grad_()
    assert torch.autograd.gradcheck(
        lambda v, r: solve_op(v, indices, r, None, *SETTINGS)[0], (values, b), fast_mode=True
    )
    cotangent = numbers(*x.shape, dtype=dtype)
    ours = torch.autograd.grad(solve_op(values, indices, b, None, *SETTINGS)[0], (values, b), cotangent)
    theirs = torch.autograd.grad(solution(values, indices, b), (values, b), cotangent)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("dtype", DTYPES)
@kinds
def test_second_order(kind, dtype):
    values, indices, b = system(kind, ((2,), (2,)), dtype)
    values.requires_grad_(), b.requires_grad_()
    assert torch.autograd.gradgradcheck(
        lambda v, r: solve_op(v, indices, r, None, *SETTINGS)[0], (values, b), fast_mode=True
    )


@kinds
def test_registration(kind):
    """PyTorch's own checks: schema, no change of inputs, fake tensors as real ones, derivatives in graphs."""
    values, indices, b = system(kind, ((), (3,)))
    given = values.requires_grad_(), indices, b.requires_grad_(), None, *SETTINGS
    torch.library.opcheck(custom_op.solve_op, given)


@pytest.mark.parametrize("mapped", ["matrix", "vector", "both"])
@pytest.mark.parametrize("batches", BATCHES, ids=str)
@kinds
def test_vmap(kind, batches, mapped):
    values, indices, b = system(kind, batches)
    scale = torch.arange(1.0, 5.0, dtype=torch.float64)
    axes = (None if mapped == "vector" else values.ndim, None if mapped == "matrix" else 0)
    many = (
        values if mapped == "vector" else values[..., None] * scale,
        b if mapped == "matrix" else scale.reshape(-1, *(1,) * b.ndim) * b,
    )
    x = torch.vmap(lambda v, r: solve_op(v, indices, r, None, *SETTINGS)[0], in_dims=axes)(*many)
    factor = {"matrix": 1 / scale, "vector": scale, "both": torch.ones(4)}[mapped]
    one = solution(values, indices, b)
    torch.testing.assert_close(x, one * factor.reshape(-1, *(1,) * one.ndim))


def graph_of(function, backend="eager", **settings):
    return torch.compile(function, fullgraph=True, backend=backend, **settings)


def with_gradients(function, loss, *given):
    """The value of a function, and the derivatives of a loss of it."""
    given = [one.clone().requires_grad_() for one in given]
    x = function(*given)
    return x.detach(), *torch.autograd.grad(loss(x), given)


@kinds
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=INDUCTOR)])
def test_one_graph(kind, backend):
    """The same program as eagerly, around the solve too."""

    def squares(values, b):
        return (call(2 * values, indices, b.sin(), rtol=1e-12, method="biCG-stab") ** 2).sum()

    values, indices, b = system(kind, ((), (3,)))
    eagerly, compiled = (with_gradients(f, lambda x: x, values, b) for f in (squares, graph_of(squares, backend)))
    torch.testing.assert_close(eagerly, compiled)


def test_dtypes_in_a_graph():
    """As eagerly: the precision of b, complex if A is."""
    A, graph = 4 * torch.eye(3), graph_of(layers.solve, dynamic=False)
    for a in (torch.float32, torch.complex64):
        for b in (torch.float64, torch.complex64, torch.int64):
            given = A.to(a), torch.ones(2, 3, dtype=b)
            assert graph(*given).dtype == layers.solve(*given).dtype, (a, b)


def test_numbers_that_change():
    values, _, b = system("dense")
    graph = graph_of(lambda A, b, n: layers.solve(A, b, max_iter=n, rtol=n * 1e-12, atol=0))
    for n in (50, 60, 70):
        torch.testing.assert_close(graph(values, b, n), solution(values, None, b))


def test_start_and_axis():
    A, _, b = system("dense", ((), (3,)))
    graph = graph_of(lambda A, b, x0: layers.solve(A, b, x0=x0, axis=0, max_iter=0))
    x = solution(A, None, b)
    torch.testing.assert_close(graph(A, b.T.clone(), x.T.clone()), x.T)  # exact: it stays, in no iteration
    with pytest.raises(Exception, match="limit"):
        graph(A, b.T.clone(), torch.zeros(N, 3, dtype=torch.float64))


def test_failures():
    values, _, b = system("dense", ((), (3,)))

    def graph(**settings):
        return graph_of(lambda A, b: layers.solve(A, b, method="GMRES", max_iter=1, **settings), "aot_eager")

    with pytest.raises(krylix.NotConverged, match="limit"):
        graph()(values, b)
    assert graph(on_failure="nan")(values, b).isnan().all()
    with krylix.on_failure("status"):
        assert graph()(values, b).isnan().all()
    with pytest.warns(Warning, match="limit"):
        assert graph(on_failure="warn")(values, b).isfinite().all()


@kinds
def test_zeros_and_no_systems(kind):
    values, indices, b = system(kind, ((), (3,)))
    values.requires_grad_()
    for zeros in (torch.zeros_like(b), b[:0]):
        zeros.requires_grad_()
        x, converged = solve_op(values, indices, zeros, None, *SETTINGS)
        assert x.shape == zeros.shape and not x.any() and converged.all()
        by_values, by_b = torch.autograd.grad(x.sum(), (values, zeros))
        assert by_values.shape == values.shape and not by_values.any() and by_b.isfinite().all()


@pytest.mark.parametrize(("kind", "method", "batch"), in_pairs(["auto", "CG", "GMRES"], [(), (2,)]), ids=str)
def test_of_a_singular_system(kind, method, batch):
    """Neumann: A maps constants to zero, x has no part of them, and derivatives are as of the pseudo-inverse."""
    dense = -torch.diag(torch.arange(1.0, N, dtype=torch.float64), 1)
    dense = dense + dense.T
    dense = dense - torch.diag(dense.sum(1))
    b, cotangent = numbers(*batch, N), torch.arange(1.0, N + 1, dtype=torch.float64) ** 2
    b = b - b.mean(-1, keepdim=True)
    sparse = dense.to_sparse().coalesce()
    indices = None if kind == "dense" else sparse.indices()
    values = dense if kind == "dense" else sparse.values()

    def x_by(values, b):
        return call(values, indices, b, method=method, rtol=1e-12)

    found = with_gradients(x_by, lambda x: (x * cotangent).sum(), values, b)
    compiled = with_gradients(graph_of(x_by, "aot_eager"), lambda x: (x * cotangent).sum(), values, b)
    torch.testing.assert_close(found, compiled)
    inverse = torch.linalg.pinv(dense)
    x, y = b @ inverse, (cotangent @ inverse).expand_as(b)
    by_values = -(y[..., :, None] * x[..., None, :]).sum_to_size(N, N)
    by_values = by_values if indices is None else by_values[tuple(indices)]
    torch.testing.assert_close(found, (x, by_values, y))


def test_a_failed_system_has_no_derivative():
    values, _, b = system("dense", ((), (3,)))
    b[1] = torch.nan
    values.requires_grad_(), b.requires_grad_()
    x, converged = solve_op(values, None, b, None, "direct", None, None, 0.0, None, "nan", True, False)
    assert converged.tolist() == [True, False, True]
    by_values, by_b = torch.autograd.grad(x.sum(), (values, b))
    assert by_b.isnan().all(-1).tolist() == [False, True, False] and by_values.isnan().all()


def test_failure_of_the_backward_solve():
    A = torch.diag(torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64))
    b = torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=torch.float64, requires_grad=True)  # one step for x, four for dx/db
    x = graph_of(lambda b: layers.solve(A, b, method="GMRES", max_iter=2), "aot_eager")(b)
    with pytest.raises(krylix.ConvergenceError) as error:
        x.sum().backward()
    assert "backward solve" in error.value.__notes__[0]


@pytest.mark.parametrize(
    "settings",
    [{"method": krylix.solvers.GMRES()}, {"preconditioner": lambda r: r}, {"history": True}, {"max_iter": [1, 2]},
     {"nullspace": "constant"}, {"on_failure": "status"}],
    ids=lambda s: next(iter(s)),
)  # fmt: skip
def test_what_a_graph_cannot_hold(settings):
    values, _, b = system("dense")
    graph = graph_of(lambda: layers.solve(values, b, **settings))
    with pytest.raises(Exception, match="A compiled graph holds"):
        graph()
    assert torch.is_tensor(layers.solve(values, b, **(settings | {"max_iter": None, "nullspace": None})))


def test_shapes_are_checked_when_the_graph_is_made():
    for A, b in ((4, 3), ((2, 3), (3,)), ((2, 3, 3), (3, 3))):
        given = torch.ones(A), torch.ones(b)
        with pytest.raises(Exception, match="expected"):
            graph_of(layers.solve, dynamic=False)(*given)
    with pytest.raises(Exception, match="rows or columns"):
        graph_of(layers.solve)(torch.eye(3), torch.eye(3))


BROADCAST = [((1,), (3,)), ((1,), ()), ((1, 3), (2, 3)), ((2, 1), (2, 3)), ((3, 1), (3,)), ((6,), (2, 3)),
             ((1, 1), (3,))]  # fmt: skip
ON_DEMAND = [pytest.param(kind, batches, marks=pytest.mark.slow)
             for kind in KINDS for batches in (((1,), (2, 3)), ((2,), (2, 1)))]  # fmt: skip


@pytest.mark.parametrize(("kind", "batches"), [*in_turn(KINDS, BROADCAST), *ON_DEMAND], ids=str)
def test_batches_as_eagerly(kind, batches):
    """The same axes, x and derivatives; matrices are repeated along axes of one."""
    values, indices, b = system(kind, batches)

    def x_by(values, b, x0=None):
        return call(values, indices, b, rtol=1e-13, axis=-1, x0=x0)

    compiled = with_gradients(graph_of(x_by, "aot_eager", dynamic=False), lambda x: (x**2).sum(), values, b)
    if kind == "dense" or values.ndim == 2:
        torch.testing.assert_close(with_gradients(x_by, lambda x: (x**2).sum(), values, b), compiled)
    x = compiled[0]
    matrices = values if indices is None else _each(values)
    matrices = matrices if matrices.numel() == x.numel() * N else matrices.expand(*x.shape, N)
    torch.testing.assert_close((matrices.reshape(-1, N, N) @ x.reshape(-1, N, 1)).reshape(x.shape), b.expand_as(x))


@kinds
def test_a_start_is_shaped_as_x(kind):
    values, indices, b = system(kind, ((), (3,)))
    for x0 in (torch.zeros(N), torch.zeros(1, N), torch.zeros(3, 1)):
        for function in (call, graph_of(call, dynamic=False)):
            with pytest.raises(Exception, match="x0 has the shape"):
                function(values, indices, b, x0=x0.to(b.dtype), axis=-1)


def test_linear_solve_says_what_to_do():
    graph = graph_of(lambda A, b: krylix.linear_solve(A, b).x)
    with pytest.raises(Exception, match=r"krylix\.torch\.solve"):
        graph(torch.eye(3), torch.ones(3))


def test_eagerly_as_linear_solve():
    A, _, b = system("dense")
    x = layers.solve(lambda v: v @ A.T, b, method="GMRES", rtol=1e-12)
    torch.testing.assert_close(x, solution(A, None, b))
    torch.testing.assert_close(torch.func.jvp(lambda b: layers.solve(A, b), (b,), (b,))[1], x)
