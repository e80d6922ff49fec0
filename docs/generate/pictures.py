"""Pictures of the pages: a Matplotlib figure as an SVG element that follows the colours of the page around it."""

import io
import re
from html import escape

import matplotlib

matplotlib.use("Agg")

INK = "#0a0b0c"  # stands for the colour of the text, which depends on the reader's choice of light or dark

matplotlib.rcParams.update(
    {
        "figure.figsize": (7.5, 3.2),
        "figure.constrained_layout.use": True,
        "savefig.transparent": True,
        "font.size": 10,
        "axes.titlesize": 10,
        "legend.frameon": False,
        "image.cmap": "viridis",
        "axes.prop_cycle": matplotlib.cycler(color=["#3b82c4", "#e07b28", "#3da35d", "#c94f7c", "#8a6fc9"]),
    }
    | dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK)
)


def show(figure, alt):
    """Print the figure as an inline SVG element. Its text and axes have the colour of the text of the page.

    Args:
        figure: of Matplotlib. It is closed.
        alt: what there is to see, for readers who do not see it.
    """
    text = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": alt}):  # ids that differ between the pictures of a page, and last
        figure.savefig(text, format="svg", metadata={"Date": None})
    matplotlib.pyplot.close(figure)
    svg = text.getvalue()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', 'style="max-width: 100%; height: auto"', svg, count=1)
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{escape(alt)}" ', 1)
    print(svg.replace(INK, "currentColor"))
