"""What has no matrix is refused with the operation, the user's line and the way out; never a wrong matrix."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from frameworks import lazy
from krylix import NonlinearError, UnsupportedOperation, linear_solve, matrix_from_function
from krylix.sparse.tracing.engine import images

torch = lazy("torch")
F = lazy("torch.nn.functional")


@pytest.fixture(scope="module", autouse=True)
def constants() -> None:
    """Tensors that the functions close over: collecting tests imports no framework."""
    global X, W
    X = torch.zeros(5, 5, dtype=torch.float64)
    W = torch.tensor(np.random.default_rng(0).standard_normal((5, 5)))


def branch(x: Any) -> Any:
    return x if x.sum() > 0 else 2 * x


def counted(x: Any) -> Any:
    return W * x[x > 0].shape[0]


def in_a_view(x: Any) -> Any:
    y = x.clone()
    y[1:2].mul_(y[:1])
    return y.T


def on_the_other_hand(x: Any) -> Any:
    y = x.clone()
    v = y[:2]
    y.exp_()
    return v + x[:2]


NONLINEAR: dict[str, tuple[Callable[[Any], Any], str]] = {
    "batch norm": (lambda x: F.batch_norm(x, None, None, training=True), "batch_norm.*deviation"),
    "batch norm of a weight": (lambda x: F.batch_norm(x, W[0], W[1].abs(), x[0]), "batch_norm.*scaled by depends"),
    "batch norm of a weight and means": (
        lambda x: F.batch_norm(W, x[0], W[1].abs(), x[1], W[2]),
        "batch_norm.*scaled by depends",
    ),
    "largest of bags": (lambda x: F.embedding_bag(torch.tensor([[0, 1]]), x, mode="max"), "'_embedding_bag.*largest"),
    "largest of segments": (
        lambda x: torch.segment_reduce(x, "max", lengths=torch.tensor([5])),
        "'segment_reduce'.*largest",
    ),
    "bilinear": (lambda x: F.bilinear(x, x, W.reshape(1, 5, 5)), "'_trilinear'.*both factors"),
    "lists": (lambda x: torch._foreach_mul([x], [x])[0], "'mul'.*both factors"),
    "lists of roots": (lambda x: torch._foreach_sqrt([x])[0], "'_foreach_sqrt'"),
    "relu": (lambda x: torch.relu(x), "'relu'"),
    "square": (lambda x: x * x, "'mul'.*both factors"),
    "power": (lambda x: x**2, "'pow'"),
    "abs": (lambda x: x.abs(), "'abs'"),
    "max": (lambda x: x.max() * W, "'max'"),
    "median": (lambda x: x.median() * W, "'median'"),
    "sort": (lambda x: x.sort().values, "'sort'"),
    "clamp": (lambda x: x.clamp(0), "'clamp'"),
    "comparison": (lambda x: (x > 0) * W, "'gt'"),
    "where": (lambda x: torch.where(x > 0, x, 0.0), "'gt'"),
    "divided by": (lambda x: W / x, "'div'.*the divisor"),
    "rounded": (lambda x: torch.div(x, 2, rounding_mode="floor"), "'div'.*rounds"),
    "half": (lambda x: x.half().double(), "'_to_copy'.*float16"),
    "bfloat16": (lambda x: x.bfloat16().double(), "'_to_copy'.*bfloat16"),
    "integers": (lambda x: x.int().double(), "'_to_copy'.*int32"),
    "product": (lambda x: x @ x, "'mm'.*both factors"),
    "convolution": (lambda x: F.conv2d(x[None, None], x[None, None, :2, :2]), "'convolution'"),
    "solve": (lambda x: torch.linalg.solve(x, W), "'_linalg_solve_ex'"),
    "softmax": (lambda x: torch.softmax(x, 0), "'_softmax'"),
    "norm": (lambda x: x / x.norm(), "'linalg_vector_norm'"),
    "in a view": (in_a_view, "'mul_'.*both factors"),
    "seen through a view": (on_the_other_hand, "'exp_'"),
    "vmap": (lambda x: torch.vmap(torch.sin)(x), "'sin'"),
    "branch": (branch, "'item'.*outside of torch"),
    "item": (lambda x: x[0, 0].item() * x, "'item'"),
    "float": (lambda x: float(x[0, 0]) * x, "'__float__'"),
    "equal": (lambda x: 2 * x if torch.equal(x, x) else x, "'equal'"),
    "allclose": (lambda x: 2 * x if torch.allclose(x, W) else x, "'allclose'"),
    "index": (lambda x: W[x.argmax()], "'item'"),
    "number of elements": (counted, "'index'.*shape"),
    "nonzero": (lambda x: x.nonzero().double(), "'nonzero'.*shape"),
    "item of a view": (lambda x: (x.T.reshape(-1)[::2] * 2)[1].item() * W, "'item'"),
    "item of a workspace": (lambda x: torch.zeros(5, 5).double().copy_(x)[0, 0].item() * W, "'item'"),
    "item in vmap": (lambda x: torch.vmap(lambda r: r * 2)(x)[0, 0].item() * W, "'item'"),
}


@pytest.mark.parametrize("name", NONLINEAR)
@pytest.mark.parametrize("prune", [True, False])
def test_not_linear(name: str, prune: bool) -> None:
    f, message = NONLINEAR[name]
    with pytest.raises(NonlinearError, match=rf"{message}") as caught:
        matrix_from_function(f, X, prune=prune)
    assert "test_torch_refusals.py:" in str(caught.value)


UNSUPPORTED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "random": (lambda x: torch.rand_like(x) * x, "'rand_like'.*random"),
    "dropout": (lambda x: F.dropout(x), "'bernoulli_'.*random"),
    "twice": (lambda x: x.index_put((torch.tensor([0, 0]),), x[:2]), "'index_put'.*twice"),
    "scattered twice": (lambda x: x.scatter(0, torch.zeros(2, 5, dtype=torch.int64), x), "'scatter'.*twice"),
    "bits": (lambda x: (x.view(torch.int64) ^ 1).view(torch.float64), "'bitwise_xor'.*bits"),
    "unpooled twice": (
        lambda x: F.max_unpool2d(x[None], torch.zeros(1, 5, 5, dtype=torch.int64), 3),
        "'max_unpool2d'.*twice",
    ),
    "no mean": (lambda x: torch.segment_reduce(x, "mean", lengths=torch.tensor([5, 0])), "'segment_reduce'.*initial"),
    "batch norm of a weight alone": (
        lambda x: F.batch_norm(W, W[0], W[1].abs(), x[1], W[2]),
        "no rule for these operands",
    ),
    "saved means": (
        lambda x: torch.ops.aten.native_batch_norm(x, None, None, W[0], W[1].abs(), False, 0.1, 1e-5)[1].sum(),
        "no rule for its result 2 of 3",
    ),
    "total weight": (
        lambda x: torch.ops.aten.nll_loss_forward(x, torch.arange(5), W[0], 1, -100)[1],
        "'nll_loss_forward'.*no rule for its result 'total_weight'",
    ),
    "factors of a solve": (lambda x: torch.ops.aten._linalg_solve_ex(W, x)[1], "no rule for its result 'LU'"),
    "sparse": (lambda x: x.to_sparse() @ W, "'_to_sparse'.*no rule"),
    "resized": (lambda x: x.clone().resize_(2, 2), "'resize_'.*no rule"),
    "numpy": (lambda x: torch.as_tensor(np.sin(x.numpy())), "'numpy'.*to NumPy"),
    "array": (lambda x: torch.as_tensor(np.sin(x)), "'__array__'.*to NumPy"),
    "detached array": (lambda x: torch.as_tensor(x.detach().cpu().numpy() * 2), "'numpy'.*to NumPy"),
    "tolist": (lambda x: torch.tensor(x.tolist()), "'tolist'.*to NumPy"),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_without_a_rule(name: str) -> None:
    f, message = UNSUPPORTED[name]
    with pytest.raises(UnsupportedOperation, match=rf"{message}") as caught:
        matrix_from_function(f, X)
    assert "test_torch_refusals.py:" in str(caught.value)


def test_too_many_entries_are_refused_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "MOST_UNITS", 40)
    big = torch.empty(1 << 18, dtype=torch.float64, device="meta")
    for f in (lambda x: torch.fft.fft(x), lambda x: x.cumsum(0)):
        with pytest.raises(UnsupportedOperation, match="stored entries"):
            matrix_from_function(f, big)
    with pytest.raises(UnsupportedOperation, match="unit vectors"):
        matrix_from_function(lambda x: torch.linalg.solve(torch.eye(41).double(), x), big[:41])


def test_complex_input_has_no_real_part() -> None:
    for f in (lambda x: x.real, lambda x: x.conj() + x, lambda x: torch.view_as_real(x)):
        with pytest.raises(UnsupportedOperation, match="real"):
            matrix_from_function(f, X.to(torch.complex128))


@pytest.mark.parametrize("found", [None, 3.0, np.zeros(3)])
def test_results_that_are_no_tensors(found: Any) -> None:
    with pytest.raises(TypeError, match=rf"returned {type(found).__name__}; expected a tensor"):
        matrix_from_function(lambda x: found, X)


def test_dtypes() -> None:
    for dtype in (torch.int64, torch.bool):
        with pytest.raises(TypeError, match="the input of the traced function has the dtype"):
            matrix_from_function(lambda x: x, X.to(dtype))
    with pytest.raises(TypeError, match="an output of the traced function has the dtype bool"):
        matrix_from_function(lambda x: W > 0, X)
    with pytest.raises(TypeError, match="bfloat16"):
        matrix_from_function(lambda x: x, X.bfloat16())


@pytest.mark.parametrize("size", [5, 300])
def test_what_escapes_the_record_is_found_by_the_test(size: int) -> None:
    """A number that torch never sees, as of a C extension."""
    state = {"calls": 0}

    def changing(x: Any) -> Any:
        state["calls"] += 1
        return state["calls"] * x

    with pytest.raises(UnsupportedOperation, match="returns other numbers when it is called again"):
        matrix_from_function(changing, torch.zeros(size, size, dtype=torch.float64))


def test_inside_of_transformations_there_is_no_matrix() -> None:
    for call in (torch.func.grad, torch.vmap):
        with pytest.raises(UnsupportedOperation, match=r"inside torch\.func"):
            call(lambda w: matrix_from_function(lambda x: w.sum() * x, X)[0].diagonal().sum())(W)
    solved = torch.func.grad(lambda w: linear_solve(lambda x: (w * w + 3) * x, W, method="direct").x.sum())(W)
    expected = torch.func.grad(lambda w: (W / (w * w + 3)).sum())(W)
    np.testing.assert_allclose(solved, expected, rtol=1e-12)


def test_nothing_of_a_failed_trace_is_left() -> None:
    for f in (torch.relu, branch):
        with pytest.raises(NonlinearError):
            matrix_from_function(f, X)
    assert matrix_from_function(lambda x: 2 * x, X)[0].nnz == 25
    assert float(torch.ones(2).sum()) == 2
