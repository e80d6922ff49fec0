"""Colour maps for matrix entries: sign and magnitude, or counts."""

from __future__ import annotations

from typing import Any

import numpy as np

_FAINTEST = 0.3  # of the way from white to full colour: what the smallest entry gets
_DECADES = 8  # entries that are smaller than the largest by more than this look alike
_BAD = "#ff00ff"


class EntryColours:
    """Real entries: red is positive, blue negative, the darker the larger; complex ones by their magnitude.

    Stored zeros are grey, NaN and infinity magenta. The scale is logarithmic.

    Args:
        values: all entries, any shape.
    """

    def __init__(self, values: np.ndarray) -> None:
        sizes = np.abs(values[np.isfinite(values)]).astype(float)
        sizes = sizes[sizes > 0]
        self.signed = not np.iscomplexobj(values)
        self.high = float(sizes.max(initial=0)) or 1.0
        self.low = max(float(sizes.min(initial=np.inf)), self.high * 10.0**-_DECADES) if sizes.size else 1.0
        self.negative = self.signed and bool(np.any(values < 0))
        self.positive = not self.signed or bool(np.any(values > 0))

    def places(self, values: np.ndarray) -> np.ndarray:
        """Where on the colour map each value is: -1 ... 1, 0 for zero, 2 for NaN and infinity."""
        finite = np.isfinite(values)
        sizes = np.where(finite, np.abs(values), 0)
        sign = np.sign(np.where(finite, values.real, 0)) if self.signed else np.sign(sizes)
        return np.where(finite, sign * self._strength(sizes), 2.0)

    def _strength(self, sizes: np.ndarray) -> np.ndarray:
        if self.high == self.low:
            return np.full(sizes.shape, 0.75)
        sizes = np.clip(np.asarray(sizes, np.float64), self.low, self.high)
        logarithm = np.log(sizes / self.low) / np.log(self.high / self.low)
        return _FAINTEST + (1 - _FAINTEST) * np.minimum(logarithm, 1)  # never beyond the last colour by rounding

    def settings(self) -> dict[str, Any]:
        """Arguments for `imshow` of places; masked ones are white."""
        from matplotlib import colormaps
        from matplotlib.colors import ListedColormap

        steps = np.linspace(0, 1, 255)
        colours = colormaps["RdBu_r"](steps) if self.signed else colormaps["viridis_r"](np.abs(2 * steps - 1))
        colours[126:129] = colormaps["Greys"](0.35)
        cmap = ListedColormap(colours).with_extremes(over=_BAD, bad="white")
        return {"cmap": cmap, "vmin": -1, "vmax": 1}

    def add_bar(self, image: Any, ax: Any) -> None:
        """The colour bar, with entries as labels."""
        bar = ax.figure.colorbar(image, ax=ax, shrink=0.8)
        marks = self._marks()
        signs = [s for s, there in ((-1, self.negative), (1, self.positive)) if there] or [1]
        values = np.array(sorted(s * m for s in signs for m in marks))
        bar.set_ticks(self.places(values), labels=[f"{v:.3g}" for v in values])
        bar.ax.set_ylim(-1 if self.negative else 0, 1 if self.positive or not self.negative else 0)
        bar.set_label("entry" if self.signed else "|entry|")
        bar.ax.minorticks_off()

    def _marks(self) -> list[float]:
        """Magnitudes to label: the smallest, the largest, powers of ten that are not too close to these."""
        if self.high == self.low:
            return [self.high]
        first, last = np.log10(self.low), np.log10(self.high)
        space = (last - first) / 6
        powers = [k for k in range(int(np.ceil(first)), int(np.floor(last)) + 1) if first + space < k < last - space]
        powers = powers[:: max(1, -(-len(powers) // 4))]
        return [self.low, *(10.0**k for k in powers), self.high]


def count_settings(largest: int) -> dict[str, Any]:
    """Arguments for `imshow` of numbers of entries: logarithmic, the darker the more; masked ones are white."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap, LogNorm

    cmap = ListedColormap(colormaps["YlGnBu"](np.linspace(0.4, 1, 256)))
    return {"cmap": cmap.with_extremes(bad="white"), "norm": LogNorm(1, max(largest, 2))}


def round_numbers(largest: int) -> list[int]:
    """Numbers from 1 to `largest` for a logarithmic scale.

    >>> round_numbers(4), round_numbers(30), round_numbers(6000)
    ([1, 2, 4], [1, 2, 5, 10, 20, 30], [1, 10, 100, 1000, 6000])
    """
    powers = range(len(str(largest)))
    found = [k * 10**p for p in powers for k in ((1, 2, 5) if len(powers) <= 2 else (1,))]
    return [*(k for k in found if k < 0.7 * largest), largest]


def text_colour(rgba: tuple[float, float, float, float]) -> str:
    """Black or white, whichever can be read on this background."""
    red, green, blue, _ = rgba
    return "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "white"


def short(value: complex, digits: int = 4) -> str:
    """A number in few characters.

    >>> short(-0.25), short(4.0), short(1e-12), short(1 - 2j)
    ('-0.25', '4', '1e-12', '1-2j')
    """
    if isinstance(value, complex) or np.iscomplexobj(value):
        imaginary = f"{value.imag:+.{digits}g}j"
        return imaginary.lstrip("+") if value.real == 0 else f"{value.real:.{digits}g}{imaginary}"
    return f"{value:.{digits}g}"
