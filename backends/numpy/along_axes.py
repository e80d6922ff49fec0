"""Fast Fourier transforms and first-order recurrences in NumPy, on all cores of this process.

The transforms are SciPy's; recurrences go in place, row after row, with columns in parallel.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.fft

from ..cores import available
from ..cores import shared as cores
from ..interface.arrays import Array
from ..interface.kernels import Fourier

_CORES = available()
_SMALL = 32768  # numbers that one core transforms before others have begun
_TYPES = {"I": 1, "II": 2, "III": 3, "IV": 4}
COST_OF_STEP = 1e5
_BLOCK = 8192  # numbers of a row that stay in the cache until the next one


class NumpyFourier(Fourier):
    """Each line is transformed by one thread, so results do not depend on the number of threads."""

    cost = 2.4
    along_any_axis = True

    def forward(self, x: Array, axes: Sequence[int]) -> Array:
        function = scipy.fft.fftn if x.dtype.kind == "c" else scipy.fft.rfftn
        return function(x, axes=tuple(axes), workers=self.threads(x))

    def backward(self, x: Array, axes: Sequence[int], length: int | None) -> Array:
        if length is None:
            return scipy.fft.ifftn(x, axes=tuple(axes), workers=self.threads(x))
        lengths = [*(x.shape[axis] for axis in axes[:-1]), length]
        return scipy.fft.irfftn(x, lengths, tuple(axes), workers=self.threads(x))

    def parts(self, x: Array) -> tuple[Array, Array]:
        return x.real, x.imag

    def complex(self, real: Array, imaginary: Array) -> Array:
        image = np.empty(real.shape, np.result_type(real.dtype, np.complex64))
        image.real, image.imag = real, imaginary
        return image

    def trigonometric(self, kind: str, x: Array, axes: Sequence[int]) -> Array | None:
        family, number = kind.split("-")
        if number not in _TYPES:
            return None
        function = scipy.fft.dstn if family == "DST" else scipy.fft.dctn
        return function(x, _TYPES[number], axes=tuple(axes), norm="ortho", workers=self.threads(x))

    def threads(self, x: Array) -> int:
        """Number of threads for this array."""
        return _CORES if x.size > _SMALL else 1


def recurrence(factors: np.ndarray, x: np.ndarray, backward: bool) -> np.ndarray:
    """See `Kernels.recurrence`."""
    found = x.astype(np.result_type(factors, x))  # a copy
    n, m = factors.shape
    order = range(n - 1, -1, -1) if backward else range(n)

    def work(first: int, last: int) -> None:
        for one in found:
            mine, own = list(one[:, first:last]), list(factors[:, first:last])
            room = np.empty(last - first, found.dtype)
            before = mine[order[0]] if n else room
            for i in order[1:]:
                np.multiply(own[i], before, out=room)
                before = mine[i]
                np.add(before, room, out=before)

    cores.in_blocks(work, m, _BLOCK)
    return found
