"""As `standard_calls.py`: linear algebra and Fourier transforms."""

from __future__ import annotations

from standard_calls import lines

PRODUCTS = """
matmul(x1, x2, /)
    iufc: xp.matmul(m, m[0, ...])
    iufc: xp.matmul(y, m)
    iufc: xp.matmul(x, y)
    iufc: xp.matmul(y, y)
    fc: xp.matmul(e, m[0, ...])
tensordot(x1, x2, /, *, axes=2)
    iufc: xp.tensordot(m, m[0, ...])
    iufc: xp.tensordot(m, x, axes=0)
    iufc: xp.tensordot(m, m, axes=((0, -1), (0, 1)))
vecdot(x1, x2, /, *, axis=-1)
    iufc: xp.vecdot(x, y)
    iufc: xp.vecdot(m, m[0, ...], axis=-2)
linalg.matmul(x1, x2, /)
    xp.linalg.matmul(m, m)
linalg.tensordot(x1, x2, /, *, axes=2)
    xp.linalg.tensordot(x, m[0, ...], axes=1)
linalg.vecdot(x1, x2, /, *, axis=-1)
    xp.linalg.vecdot(x, y, axis=-1)
linalg.matrix_transpose(x, /)
    xp.linalg.matrix_transpose(x)
linalg.cross(x1, x2, /, *, axis=-1)
    ifc: xp.linalg.cross(x, y)
    ifc: xp.linalg.cross(m, m[0, ...], axis=-2) -> xp.linalg.cross(*xp.broadcast_arrays(m, m[0]), axis=-2)
linalg.outer(x1, x2, /)
    iufc: xp.linalg.outer(v, y)
linalg.diagonal(x, /, *, offset=0)
    biufc: xp.linalg.diagonal(m)
    biufc: xp.linalg.diagonal(x, offset=1)
    biufc: xp.linalg.diagonal(x, offset=-1)
    f: xp.linalg.diagonal(x, offset=7)
linalg.trace(x, /, *, offset=0, dtype=None)
    iufc: xp.linalg.trace(m)
    iufc: xp.linalg.trace(m, offset=-1, dtype=wide)
linalg.vector_norm(x, /, *, axis=None, keepdims=False, ord=2)
    xp.linalg.vector_norm(x)
    xp.linalg.vector_norm(m, axis=(0, -1), keepdims=True)
    xp.linalg.vector_norm(x, axis=1, ord=1)
    xp.linalg.vector_norm(x, axis=1, ord=float("inf"))
    xp.linalg.vector_norm(x, axis=-1, ord=-float("inf"), keepdims=True)
    xp.linalg.vector_norm(x, axis=0, ord=0)
    xp.linalg.vector_norm(x, axis=0, ord=3)
    xp.linalg.vector_norm(x, keepdims=True)
linalg.matrix_norm(x, /, *, keepdims=False, ord='fro')
    xp.linalg.matrix_norm(m)
    xp.linalg.matrix_norm(m, ord="nuc", keepdims=True)
    [xp.linalg.matrix_norm(m, ord=p) for p in (1, -1, 2, -2, float("inf"), -float("inf"))]
    xp.linalg.matrix_norm(x, ord=1, keepdims=True)
"""

FACTORS = """
linalg.cholesky(x, /, *, upper=False)
    xp.linalg.cholesky(h)
    xp.linalg.cholesky(h, upper=True) -> xp.conj(xp.matrix_transpose(xp.linalg.cholesky(h)))
linalg.det(x, /)
    xp.linalg.det(m)
linalg.eigh(x, /)
    xp.linalg.eigh(h).eigenvalues
    same(h, *xp.linalg.eigh(h)) -> h
linalg.eigvalsh(x, /)
    xp.linalg.eigvalsh(h)
linalg.inv(x, /)
    xp.linalg.inv(m)
linalg.matrix_power(x, n, /)
    [xp.linalg.matrix_power(m, n) for n in (0, 1, 5, -2)]
linalg.matrix_rank(x, /, *, rtol=None)
    xp.linalg.matrix_rank(m * 0 + 1)
    xp.linalg.matrix_rank(m)
    xp.linalg.matrix_rank(h, rtol=0.5)
linalg.pinv(x, /, *, rtol=None)
    xp.linalg.pinv(x)
    xp.linalg.pinv(m * 0 + 1, rtol=1e-3)
linalg.qr(x, /, *, mode='reduced')
    [q @ r for q, r in [xp.linalg.qr(tall)]] -> [tall]
    [q @ r for q, r in [xp.linalg.qr(tall, mode="complete")]] -> [tall]
linalg.slogdet(x, /)
    xp.linalg.slogdet(m)
    xp.linalg.slogdet(m * 0)
linalg.solve(x1, x2, /)
    xp.linalg.solve(m, m)
    xp.linalg.solve(m, y)
    xp.linalg.solve(m, m[0, ...])
    xp.linalg.solve(m[0, ...], m)
    xp.linalg.solve(xp.stack([h[0, ...]] * 3), m[0, ...])
linalg.svd(x, /, *, full_matrices=True)
    [xp.matmul(u * xp.astype(w, u.dtype), v) for u, w, v in [xp.linalg.svd(tall, full_matrices=False)]] -> [tall]
    [f.shape[-1] for f in xp.linalg.svd(tall, full_matrices=True)]
linalg.svdvals(x, /)
    xp.linalg.svdvals(tall)
"""

_ONE = "(x, /, *, n=None, axis=-1, norm='backward')"
_MORE = "(x, /, *, s=None, axes=None, norm='backward')"
_ONE_CALLS = ("NAME(x)", "NAME(x, n=5, axis=0, norm='ortho')", "NAME(m, n=2, axis=-2, norm='forward')")
_MORE_CALLS = ("NAME(m)", "NAME(m, s=(2, 4), axes=(0, -1), norm='ortho')", "NAME(m, axes=(1,), norm='forward')")

FFT = (
    lines("fft.fft fft.ifft", _ONE, *(f"fc: {call}" for call in _ONE_CALLS))
    + lines("fft.rfft fft.ihfft", _ONE, *(f"f: {call}" for call in _ONE_CALLS))
    + lines("fft.irfft fft.hfft", _ONE, *(f"c: {call}" for call in _ONE_CALLS))
    + lines("fft.fftn fft.ifftn", _MORE, *(f"c: {call}" for call in _MORE_CALLS))
    + lines("fft.rfftn", _MORE, *(f"f: {call}" for call in _MORE_CALLS))
    + lines("fft.irfftn", _MORE, *(f"c: {call}" for call in _MORE_CALLS))
    + """fft.fftfreq(n, /, *, d=1.0, dtype=None, device=None)
    xp.fft.fftfreq(5)
    xp.fft.fftfreq(4, d=0.5, dtype=fl, device=None) -> xp.fft.fftfreq(4, d=0.5).astype(fl)
fft.rfftfreq(n, /, *, d=1.0, dtype=None, device=None)
    xp.fft.rfftfreq(5)
    xp.fft.rfftfreq(4, d=0.5, dtype=fl, device=None) -> xp.fft.rfftfreq(4, d=0.5).astype(fl)
fft.fftshift(x, /, *, axes=None)
    xp.fft.fftshift(x)
    xp.fft.fftshift(m, axes=(0, -1))
fft.ifftshift(x, /, *, axes=None)
    xp.fft.ifftshift(x)
    xp.fft.ifftshift(x, axes=1)
"""
)
