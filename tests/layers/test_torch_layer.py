"""`krylix.torch.Solve`: a layer with a matrix or a function, its values trained, saved, moved and compiled."""

import copy
import io
import pickle

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from frameworks import lazy

torch, layers = lazy("torch"), lazy("krylix.torch")
N = 12
SCIPY = sp.diags_array([-1.0, 3.0, -0.5], offsets=[-1, 0, 1], shape=(N, N)).tocsr()
DENSE = SCIPY.toarray()
KINDS = {
    "dense": lambda: torch.tensor(DENSE),
    "coo": lambda: torch.tensor(DENSE).to_sparse_coo(),
    "csr": lambda: torch.tensor(DENSE).to_sparse_csr(),
    "numpy": lambda: DENSE,
    "scipy": lambda: SCIPY,
    "krylix": lambda: krylix.as_operator(SCIPY),
}


def stencil(k=3.0):
    """A module: k x minus the neighbours."""

    class Stencil(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.k = torch.nn.Parameter(torch.tensor(k, dtype=torch.float64))

        def forward(self, x):
            return self.k * x - torch.roll(x, 1, -1) - 0.5 * torch.roll(x, -1, -1)

    return Stencil()


def layer_of(kind, **settings):
    return layers.Solve(KINDS[kind](), **settings)


def right_hand_sides(*shape, dtype="float64"):
    return torch.tensor(np.random.default_rng(0).normal(size=(*shape, N)), dtype=getattr(torch, dtype))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(), (3,), (N,), (2, 3)])
def test_solution(kind, shape):
    layer, b = layer_of(kind, rtol=1e-11, dtype=torch.float64), right_hand_sides(*shape)
    x = layer(b)
    assert x.shape == b.shape and x.dtype == b.dtype
    torch.testing.assert_close(x @ torch.tensor(DENSE).T, b)


def test_precision():
    """That of a tensor; PyTorch's default for what NumPy holds."""
    for kind in KINDS:
        assert layer_of(kind).values.dtype == (torch.float64 if kind in ("dense", "coo", "csr") else torch.float32)
    assert layers.Solve(SCIPY * (1 + 1j)).values.dtype == torch.complex64
    b = right_hand_sides(2, dtype="float32")
    assert layers.Solve(SCIPY)(b).dtype == torch.float32
    layer = layers.Solve(SCIPY)
    layer(b)  # its pattern is kept now
    layer.to(torch.float64)
    torch.testing.assert_close(layer(b.double()) @ torch.tensor(DENSE).T, b.double(), rtol=1e-9, atol=1e-9)
    assert layer.indices.dtype == torch.int64


@pytest.mark.parametrize("kind", ["dense", "coo"])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_gradients(kind, dtype):
    A, dtype = torch.tensor(DENSE[:4, :4]), getattr(torch, dtype)
    layer = layers.Solve(A if kind == "dense" else A.to_sparse_coo(), rtol=1e-13, dtype=dtype, method="GMRES")
    b = right_hand_sides(1)[:, :4].to(dtype).requires_grad_()
    assert torch.autograd.gradcheck(lambda b, _: layer(b), (b, layer.values), fast_mode=True)
    assert torch.autograd.gradgradcheck(lambda b, _: layer(b), (b, layer.values), fast_mode=True)


def test_functions():
    def shifted(x, k, c):
        return k * x - c * torch.roll(x, 1, -1)

    module = layers.Solve(stencil(), method="GMRES", rtol=1e-12)
    layer = layers.Solve(shifted, args=(3.0, torch.tensor(0.5)), dtype=torch.float64, rtol=1e-12)
    assert dict(module.named_parameters()).keys() == {"function.k"}
    assert dict(layer.named_parameters()).keys() == {"arg0", "arg1"}
    b = right_hand_sides(4)
    torch.testing.assert_close(module.function(module(b)), b)
    torch.testing.assert_close(shifted(layer(b), 3.0, 0.5), b)
    one = layers.Solve(stencil(), method="GMRES", batch_ndim=0, rtol=1e-12)
    torch.testing.assert_close(one(b[0]), module(b)[0])
    for tested, parameter in ((module, module.function.k), (layer, layer.arg1)):
        tested(b).square().sum().backward()
        found, eps = float(parameter.grad), 1e-4
        values = []
        for step in (eps, -2 * eps):
            with torch.no_grad():
                parameter += step
                values.append(tested(b).square().sum().item())
        np.testing.assert_allclose(found, (values[0] - values[1]) / (2 * eps), rtol=1e-5)


@pytest.mark.parametrize("kind", ["dense", "coo", "module"])
def test_training(kind):
    """Find the matrix that made the data."""
    b = right_hand_sides(32)
    x = torch.linalg.solve(torch.tensor(DENSE) + 0.5 * torch.eye(N), b.T).T
    layer = layers.Solve(stencil(2.6)) if kind == "module" else layer_of(kind)
    optimiser, losses = torch.optim.Adam(layer.parameters(), lr=0.05), []
    for _ in range(12):
        optimiser.zero_grad()
        loss = (layer(b) - x).square().mean()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]


def test_fixed():
    layer = layers.Solve(SCIPY, trainable=False)
    assert not list(layer.parameters()) and layer.state_dict().keys() == {"values", "indices"}
    b = right_hand_sides(dtype="float32").requires_grad_()
    layer(b).sum().backward()
    assert b.grad is not None
    assert not list(layers.Solve(torch.square, args=(torch.ones(2),), trainable=False).parameters())


@pytest.mark.parametrize("kind", ["dense", "scipy"])
def test_saving(kind):
    b = right_hand_sides(2, dtype="float32")
    layer, other = layer_of(kind), layers.Solve(0 * KINDS[kind]() + KINDS[kind]().T)
    layer, other, file = layer.float(), other.float(), io.BytesIO()
    assert not torch.allclose(layer(b), other(b))
    torch.save(layer.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file))
    for again in (other, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        torch.testing.assert_close(again(b), layer(b))


def test_indices_that_were_loaded_in_another_order():
    layer, b = layers.Solve(SCIPY, rtol=1e-6), right_hand_sides(2, dtype="float32")
    expected, order = layer(b), torch.randperm(len(layer.values))
    layer.load_state_dict({"values": layer.values[order], "indices": layer.indices[:, order]})
    torch.testing.assert_close(layer(b), expected)


def test_values_changed_in_place():
    layer, b = layers.Solve(SCIPY), right_hand_sides(2, dtype="float32")
    before = layer(b)
    with torch.no_grad():
        layer.values *= 2
    torch.testing.assert_close(layer(b), before / 2)


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_in_one_graph(kind):
    layer = layer_of(kind, rtol=1e-11)
    graph, b = torch.compile(layer, fullgraph=True, backend="aot_eager"), right_hand_sides(3)
    gradients = []
    for call in (layer, graph):
        layer.zero_grad()
        x = call(b)
        x.square().sum().backward()
        gradients.append((x.detach(), layer.values.grad.clone()))
    torch.testing.assert_close(gradients[0], gradients[1])


@pytest.mark.parametrize("kind", ["dense", "csr"])
@pytest.mark.parametrize("strict", [True, False])
def test_export(kind, strict):
    layer, b, file = layer_of(kind, method="direct"), right_hand_sides(3), io.BytesIO()
    systems = torch.export.Dim("systems", min=2)
    program = torch.export.export(layer, (b,), dynamic_shapes=({0: systems},), strict=strict)
    torch.export.save(program, file)
    file.seek(0)
    loaded = torch.export.load(file).module()
    for count in (2, N, 20):
        torch.testing.assert_close(loaded(right_hand_sides(count)), layer(right_hand_sides(count)))


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_ensemble(kind):
    """torch.func over the values: one solve for each matrix."""
    layer, b = layer_of(kind, rtol=1e-11), right_hand_sides()

    def loss(values):
        return torch.func.functional_call(layer, {"values": values}, (b,)).sum()

    scales = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)
    values = torch.stack([s * layer.values.detach() for s in scales])
    torch.testing.assert_close(torch.vmap(loss)(values), layer(b).sum().detach() / scales)
    gradients = torch.vmap(torch.func.grad(loss))(values)
    torch.testing.assert_close(gradients[1], torch.func.grad(loss)(2 * layer.values.detach()))


def test_inference_mode():
    b = right_hand_sides(dtype="float32")
    with torch.inference_mode():
        layer = layers.Solve(SCIPY)
        assert not layer(b).requires_grad
        assert not torch.compile(layer, fullgraph=True, backend="aot_eager")(b).requires_grad


def test_in_a_model():
    model = torch.nn.Sequential(torch.nn.Linear(5, N), layers.Solve(SCIPY, method="CG-adaptive", on_failure="nan"))
    assert "n=12, nnz=34, method='CG-adaptive'" in repr(model)
    model = torch.nn.Sequential(torch.nn.Linear(5, N), layers.Solve(SCIPY))
    model(torch.ones(4, 5)).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_refusals():
    b = right_hand_sides(dtype="float32")
    for kind, match, call in (
        (ValueError, "square", lambda: layers.Solve(torch.ones(2, 3))),
        (ValueError, "square", lambda: layers.Solve(np.ones((2, 3)))),
        (ValueError, "square", lambda: layers.Solve(np.stack([DENSE, DENSE]))),
        (ValueError, r"b\[None\]", lambda: layers.Solve(stencil(), batch_ndim=1)(right_hand_sides())),
        (ValueError, r"b\[None\]", lambda: layers.Solve(stencil(), batch_ndim=2)(right_hand_sides(2))),
        (ValueError, "args were given for a matrix", lambda: layers.Solve(SCIPY, args=(1.0,))),
        (ValueError, r"expected \(\*batch, 12\)", lambda: layers.Solve(SCIPY)(torch.ones(5))),
        (krylix.NotConverged, "limit", lambda: layers.Solve(SCIPY, method="GMRES", max_iter=1)(b)),
    ):
        with pytest.raises(kind, match=match):
            call()
