"""Docstrings as parts of pages: text, cost, source, settings, errors."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field
from typing import Any

from griffe import Docstring, DocstringSectionKind

_PARTS = re.compile(r"(?:^|(?<=\. ))(Cost|Source|Stores)(?=[: ])")


@dataclass
class Read:
    """A docstring, taken apart.

    Attributes:
        summary: its first line.
        text: paragraphs that are none of the others.
        cost: numbers stored and work.
        source: papers and books.
        settings: name and description of each argument.
        errors: name and description of each error.
    """

    summary: str
    text: list[str] = field(default_factory=list)
    cost: str = ""
    source: str = ""
    settings: list[tuple[str, str]] = field(default_factory=list)
    errors: list[tuple[str, str]] = field(default_factory=list)


def read(value: Any) -> Read:
    """The docstring of a class or a function."""
    first, _, rest = (inspect.getdoc(value) or "").partition("\n")
    found = Read(first.rstrip("."))
    for section in Docstring(rest.strip("\n"), parser="google").parse("google", warnings=False):
        if section.kind is DocstringSectionKind.text:
            for paragraph in re.split(r"\n\s*\n", section.value.strip()):
                _sort(" ".join(paragraph.split()), found)
        elif section.kind in (DocstringSectionKind.parameters, DocstringSectionKind.attributes):
            found.settings += [(one.name, " ".join(one.description.split())) for one in section.value]
        elif section.kind is DocstringSectionKind.raises:
            found.errors += [(str(one.annotation), " ".join(one.description.split())) for one in section.value]
        elif section.kind is DocstringSectionKind.admonition:
            _sort(f"{section.title}: {' '.join(section.value.description.split())}", found)
    return found


def _sort(paragraph: str, found: Read) -> None:
    """A paragraph, or what follows a "Cost:" in it, where it belongs."""
    parts = _PARTS.split(paragraph)
    if parts[0].strip():
        found.text.append(parts[0].strip())
    for word, said in zip(parts[1::2], parts[2::2], strict=True):
        said = said.lstrip(": ").strip()
        if word == "Source":
            found.source = _sentence(said)
        else:
            said = f"Stores {said}" if word == "Stores" else said
            found.cost = f"{found.cost} {_sentence(said)}".strip()


def _sentence(text: str) -> str:
    """With a capital letter, unless it begins with a symbol such as n."""
    return text if re.match(r"\w\b|\w\^", text) else text[:1].upper() + text[1:]
