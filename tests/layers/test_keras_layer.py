"""`krylix.keras.Solve` on TensorFlow: a layer with a matrix or a function, trained, saved and loaded."""

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from frameworks import lazy

tf, keras, layers = lazy("tensorflow"), lazy("keras"), lazy("krylix.keras")
pytestmark = [
    pytest.mark.merge,
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),  # of Keras, where it saves
]
N = 8
SCIPY = sp.diags_array([-1.0, 3.0, -0.5], offsets=[-1, 0, 1], shape=(N, N)).tocsr()
MATRICES = {"dense": SCIPY.toarray(), "sparse": SCIPY}
kinds = pytest.mark.parametrize("kind", MATRICES)


@pytest.fixture(autouse=True)
def keras_on_tensorflow():
    if keras.backend.backend() != "tensorflow":
        pytest.skip("Keras runs on another library")
    keras.saving.register_keras_serializable(package="krylix_tests")(stencil)


def stencil(x, k):
    return k * x - tf.roll(x, 1, -1) - 0.5 * tf.roll(x, -1, -1)


def right_hand_sides(*shape, dtype="float32"):
    return np.random.default_rng(0).normal(size=(*shape, N)).astype(dtype)


@kinds
@pytest.mark.parametrize("shape", [(3,), (N,), (2, 3)])
def test_solution(kind, shape):
    b = right_hand_sides(*shape)
    x = layers.Solve(MATRICES[kind])(b)
    assert x.dtype == "float32" and x.shape == b.shape
    np.testing.assert_allclose(np.asarray(x) @ SCIPY.toarray().T, b, atol=1e-4)
    double = layers.Solve(MATRICES[kind], dtype="float64", rtol=1e-11)(b.astype("float64"))
    assert double.dtype == "float64"
    np.testing.assert_allclose(np.asarray(double) @ SCIPY.toarray().T, b, atol=1e-9)


@pytest.mark.parametrize("A", [*MATRICES.values(), stencil], ids=[*MATRICES, "function"])
def test_gradients(A):
    args = (3.0,) if A is stencil else ()
    layer = layers.Solve(A, args=args, dtype="float64", rtol=1e-12, method="GMRES")
    b = right_hand_sides(2, dtype="float64")
    (weight,) = layer.trainable_weights
    direction = np.random.default_rng(1).normal(size=weight.shape)
    given = tf.constant(b)
    with tf.GradientTape() as tape:
        tape.watch(given)
        loss = tf.reduce_sum(layer(given) ** 2)
    by_b, by_weight = tape.gradient(loss, [given, weight.value])
    start, values, eps = weight.numpy(), [], 1e-5
    for step in (eps, -eps):
        weight.assign(start + step * direction)
        values.append(float(tf.reduce_sum(layer(b) ** 2)))
    weight.assign(start)
    np.testing.assert_allclose(np.sum(by_weight * direction), (values[0] - values[1]) / (2 * eps), rtol=1e-5)
    toward = right_hand_sides(2, dtype="float64")[::-1]
    ahead, behind = (float(tf.reduce_sum(layer(b + s * toward) ** 2)) for s in (eps, -eps))
    np.testing.assert_allclose(np.sum(by_b * toward), (ahead - behind) / (2 * eps), rtol=1e-5)


def model_of(A, **settings):
    return keras.Sequential([keras.Input((N,)), layers.Solve(A, **settings)])


@pytest.mark.parametrize("kind", ["sparse", *(pytest.param(k, marks=pytest.mark.slow) for k in ("dense", "function"))])
def test_training_and_saving(kind, tmp_path):
    A = MATRICES.get(kind, stencil)
    b = right_hand_sides(32)
    x = np.linalg.solve(SCIPY.toarray() + 0.5 * np.eye(N), b.T).T
    model = model_of(A, args=(2.8,) if A is stencil else (), method="direct" if A is not stencil else "auto")
    model.compile(keras.optimizers.Adam(0.05), loss="mse")
    losses = model.fit(b, x, epochs=12, batch_size=32, verbose=0).history["loss"]
    assert losses[-1] < 0.2 * losses[0]
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(again(b), model(b), rtol=1e-6, atol=1e-6)
    assert again.layers[-1].settings == model.layers[-1].settings
    model.save_weights(tmp_path / "model.weights.h5")
    other = keras.models.clone_model(model)
    other.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_allclose(other(b), model(b), rtol=1e-6, atol=1e-6)


@kinds
def test_complex(kind, tmp_path):
    A, b = MATRICES[kind] * (1 + 2j), right_hand_sides(3).astype("complex64")
    model = keras.Sequential([layers.Solve(A, dtype="complex64")])
    x = np.asarray(model(b))
    np.testing.assert_allclose(x @ (SCIPY.toarray() * (1 + 2j)).T, b, atol=1e-5)
    model.save(tmp_path / "model.keras")
    np.testing.assert_array_equal(keras.saving.load_model(tmp_path / "model.keras")(b), x)


def test_fixed():
    layer = layers.Solve(SCIPY, trainable=False)
    assert not layer.trainable_weights and layer.get_config()["trainable"] is False
    layer.trainable = True
    assert [w.name for w in layer.trainable_weights] == ["values"]


def test_failures():
    b = right_hand_sides(2)
    for kind, match, call in (
        (krylix.NotConverged, "limit", lambda: layers.Solve(SCIPY, method="GMRES", max_iter=1)(b)),
        (tf.errors.OpError, "limit", lambda: model_of(SCIPY, method="GMRES", max_iter=1).predict(b, verbose=0)),
        (ValueError, "square", lambda: layers.Solve(np.ones((2, 3)))),
        (ValueError, "square", lambda: layers.Solve(np.stack([np.eye(3)] * 2))),
        (ValueError, "complex64", lambda: layers.Solve(SCIPY * (1 + 1j))),
        (ValueError, r"b\[None\]", lambda: layers.Solve(stencil, args=(3.0,))(b[0])),
        (ValueError, "args were given for a matrix", lambda: layers.Solve(SCIPY, args=(1.0,))),
        (TypeError, "cannot be stored", lambda: layers.Solve(SCIPY, preconditioner=lambda r: r).get_config()),
    ):
        with pytest.raises(kind, match=match):
            call()
