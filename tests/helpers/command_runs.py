"""What a command line said, and the files that it was given."""

import gzip
import io
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.io
import scipy.sparse as sp

N = 40
HEADER = "%%MatrixMarket matrix coordinate real general\n"


class Run(NamedTuple):
    code: int
    out: str
    err: str

    def line(self, label: str) -> str:
        """What the report says under this label."""
        (text,) = [line[len(label) :].strip() for line in self.out.splitlines() if line.startswith(f"{label} ")]
        return text


def refused(result: Run, *words: str) -> None:
    """Exit code 2, no report, and one line on stderr with these words."""
    failed(result, 2, *words)


def failed(result: Run, code: int, *words: str) -> None:
    """This exit code, no report, and one line on stderr with these words."""
    assert (result.code, result.out) == (code, ""), result
    assert result.err.startswith("krylix: ") and result.err.endswith("\n") and result.err.count("\n") == 1, result.err
    assert "Traceback" not in result.err
    for word in words:
        assert word in result.err, result.err


def no_space(*_: object, **__: object) -> None:
    """Instead of what writes a file."""
    raise OSError(28, "No space left on device")


def matrix(dtype: type = np.float64, symmetric: bool = False) -> sp.csr_array:
    rng = np.random.default_rng(0)
    A = sp.random_array((N, N), density=0.1, rng=rng)
    if np.issubdtype(dtype, np.complexfloating):
        A = A + 1j * sp.random_array((N, N), density=0.1, rng=rng)
    A = A + A.conj().T if symmetric else A
    return (A + 8 * sp.eye_array(N)).tocsr().astype(dtype)


def rhs(*shape: int, dtype: type = np.float64) -> np.ndarray:
    rng = np.random.default_rng(1)
    real = rng.standard_normal(shape)
    return (real + 1j * rng.standard_normal(shape) if np.issubdtype(dtype, np.complexfloating) else real).astype(dtype)


def residual(A: sp.sparray | np.ndarray, b: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Relative residual norm per column in double precision."""
    A, b, x = (a.astype(np.result_type(a.dtype, np.float64)) for a in (A, b, x))
    return np.linalg.norm(b - A @ x, axis=0) / np.linalg.norm(b, axis=0)


def write_npz_of_numpy(path: Path, A: sp.sparray) -> None:
    np.savez(path, anything=A.toarray())


def write_compressed(path: Path, A: sp.sparray) -> None:
    text = io.BytesIO()
    scipy.io.mmwrite(text, A, symmetry="general")
    path.write_bytes(gzip.compress(text.getvalue()))


WRITERS = {
    "A.mtx": lambda path, A: scipy.io.mmwrite(path, A, symmetry="general"),
    "dense.mtx": lambda path, A: scipy.io.mmwrite(path, A.toarray(), symmetry="general"),
    "A.mtx.gz": write_compressed,
    "A.MTX.GZ": write_compressed,
    "csr.npz": lambda path, A: sp.save_npz(path, A),
    "csc-matrix.npz": lambda path, A: sp.save_npz(path, sp.csc_matrix(A)),
    "coo.npz": lambda path, A: sp.save_npz(path, A.tocoo()),
    "dia.npz": lambda path, A: sp.save_npz(path, A.todia()),
    "bsr.npz": lambda path, A: sp.save_npz(path, A.tobsr((2, 2))),
    "numpy.npz": write_npz_of_numpy,
    "A.npy": lambda path, A: np.save(path, A.toarray()),
}
