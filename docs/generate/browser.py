"""Chromium without a window, driven through the two pipes of its DevTools protocol."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

HIGHEST = 4000  # pixels of a screenshot

PROBE = r"""(async () => {
  const wrong = [], wide = document.documentElement.clientWidth;
  const article = document.querySelector("article") || document.body;
  await document.fonts.ready;
  for (const image of article.querySelectorAll("img")) image.loading = "eager";
  await Promise.all([...article.querySelectorAll("img")].map(i => i.decode().catch(() => wrong.push("no picture " + i.src))));
  for (const formula of article.querySelectorAll(".arithmatex"))
    if (!formula.querySelector(".katex")) wrong.push("formula as text: " + formula.textContent.slice(0, 60));
  if (article.querySelector(".katex-error")) wrong.push("KaTeX: " + article.querySelector(".katex-error").title);
  const prose = article.cloneNode(true);
  for (const part of prose.querySelectorAll("pre, code, .katex, script, style")) part.remove();
  if (/\\\[|\\\(|\$\$/.test(prose.textContent)) wrong.push("a formula that nothing renders");
  if (/Traceback \(most recent/.test(prose.textContent)) wrong.push("a traceback");
  if (article.querySelector(".error")) wrong.push('class="error"');
  if (document.documentElement.scrollWidth > wide + 1) wrong.push("wider than the screen: " + document.documentElement.scrollWidth);
  const scrolls = e => { for (; e && e !== article; e = e.parentElement)
    if (/auto|scroll|hidden/.test(getComputedStyle(e).overflowX)) return true; return false; };
  const out = [...article.querySelectorAll("table, pre, svg, img, p, li, h1, h2, h3, code")].find(
    e => e.getBoundingClientRect().right > wide + 1 && e.getClientRects().length && !scrolls(e));
  if (out) wrong.push("sticks out of the page: <" + out.tagName.toLowerCase() + "> " + out.textContent.trim().slice(0, 60));
  const empty = [...article.querySelectorAll("svg[role=img]")].find(s => s.getBoundingClientRect().width < 50 && s.getClientRects().length);
  if (empty) wrong.push("an SVG picture without a size");
  return {wrong, height: document.documentElement.scrollHeight};
})()"""
"""What is wrong with the page that is shown, and its height."""


class View(NamedTuple):
    """A page, as somebody sees it."""

    page: str
    width: int
    dark: bool

    def __str__(self) -> str:
        return f"{self.page} at {self.width}, {'dark' if self.dark else 'light'}"

    @property
    def file(self) -> str:
        """Name of its screenshot."""
        return (
            f"{self.page.removesuffix('.html').replace('/', '.')}-{self.width}-{'dark' if self.dark else 'light'}.png"
        )


class Browser:
    """One tab. Commands are answered in order; what happens meanwhile is kept in `events`."""

    def __init__(self, send: int, receive: int) -> None:
        self._send, self._receive = send, os.fdopen(receive, "rb", buffering=0)
        self._number, self._buffer = 0, b""
        self.events: list[dict[str, Any]] = []
        self._session: str | None = None
        target = self.do("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.do("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network"):
            self.do(f"{domain}.enable")
        # each page is seen as by a first visitor: without a choice between light and dark that was made before
        self.do("Page.addScriptToEvaluateOnNewDocument", source="localStorage.clear()")

    def do(self, command: str, **arguments: Any) -> dict[str, Any]:
        """Give a command, and wait for its answer.

        Raises:
            RuntimeError: Chromium refused it, or ended.
        """
        self._number += 1
        message = {"id": self._number, "method": command, "params": arguments}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._send, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") != self._number:
                self.events.append(answer)
            elif "error" in answer:
                raise RuntimeError(f"{command}: {answer['error']}")
            else:
                return answer["result"]

    def wait_for(self, event: str) -> None:
        """Until this has happened since `events` was last cleared."""
        while not any(e.get("method") == event for e in self.events):
            self.events.append(self._next())

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            read = self._receive.read(1 << 16)
            if not read:
                raise RuntimeError("Chromium ended")
            self._buffer += read
        first, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(first)

    def look(self, site: Path, view: View, shots: Path | None) -> list[str]:
        """What is wrong with a view, a line each. Its screenshot is written into the folder, if one is given."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if view.dark else "light"}
        self.do("Emulation.setEmulatedMedia", features=[scheme])
        self.do("Emulation.setDeviceMetricsOverride", width=view.width, height=900, deviceScaleFactor=1, mobile=False)
        self.events.clear()
        self.do("Page.navigate", url=(site / view.page).as_uri())
        self.wait_for("Page.loadEventFired")
        seen = self.do("Runtime.evaluate", expression=PROBE, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in seen:
            return [f"{view}: {seen['exceptionDetails']}"]
        found = seen["result"]["value"]
        wrong = found["wrong"] + [f"loads {url}" for url in self._requested() if url.startswith("http")]
        if shots is not None:
            self._shoot(shots / view.file, view.width, min(found["height"], HIGHEST))
        return [f"{view}: {one}" for one in wrong]

    def _requested(self) -> Iterator[str]:
        for event in self.events:
            if event.get("method") == "Network.requestWillBeSent":
                yield event["params"]["request"]["url"]

    def _shoot(self, path: Path, width: int, height: int) -> None:
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        picture = self.do("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(picture["data"]))


@contextmanager
def opened(chromium: str) -> Iterator[Browser]:
    """A browser for a while."""
    to_it, send = os.pipe()
    receive, from_it = os.pipe()

    def as_three_and_four() -> None:
        kept = os.dup(to_it), os.dup(from_it)
        os.dup2(kept[0], 3), os.dup2(kept[1], 4)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe"]
        process = subprocess.Popen(
            [chromium, *options, f"--user-data-dir={profile}", "about:blank"], preexec_fn=as_three_and_four,
            close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_it), os.close(from_it)
        try:
            yield Browser(send, receive)
        finally:
            process.terminate()
            process.wait()
