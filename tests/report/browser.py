"""A browser without a window, spoken to over a pipe: what it shows, logs and asks for."""

from __future__ import annotations

import base64
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from typing import Any

CHROMIUM = shutil.which("chromium")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--hide-scrollbars", "--remote-debugging-pipe"),
)


@dataclass
class Shown:
    """A page as a browser showed it."""

    picture: bytes
    width: int
    content_width: int
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    facts: Any = None


class Browser:
    """Chromium behind a pipe of messages that end in a zero byte."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs_in, self._to = os.pipe()
        self._from, theirs_out = os.pipe()

        def place() -> None:
            # The browser reads from descriptor 3 and writes to 4; keep them off each other.
            spare_in, spare_out = os.dup(theirs_in), os.dup(theirs_out)
            os.dup2(spare_in, 3)
            os.dup2(spare_out, 4)

        self._process = subprocess.Popen(
            [str(CHROMIUM), *FLAGS, f"--user-data-dir={self._folder.name}", "about:blank"],
            preexec_fn=place,
            close_fds=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._buffer, self._number, self.events = b"", 0, []

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._to)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._from)
        self._folder.cleanup()

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            piece = os.read(self._from, 1 << 16)
            if not piece:
                raise RuntimeError("the browser is gone")
            self._buffer += piece
        text, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(text)

    def ask(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """What the browser answers to a command."""
        self._number += 1
        asked = {"id": self._number, "method": method, "params": params}
        if session is not None:
            asked["sessionId"] = session
        os.write(self._to, json.dumps(asked).encode() + b"\0")
        while True:
            message = self._message()
            if message.get("id") == self._number:
                assert "error" not in message, message
                return message["result"]
            self.events.append(message)

    def show(self, page: pathlib.Path, *, width: int, dark: bool, script: str = "null") -> Shown:
        """A page at some width, in light or dark, and what a script finds in it."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.ask(f"{domain}.enable", session)
        self.ask(
            "Emulation.setDeviceMetricsOverride", session,
            width=width, height=900, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", session, features=[theme])
        self.events.clear()
        self.ask("Page.navigate", session, url=page.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._message())
        content_width = self._value(session, "document.documentElement.scrollWidth")
        height = self._value(session, "document.documentElement.scrollHeight")
        facts = self._value(session, script)
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        shot = self.ask("Page.captureScreenshot", session, clip=clip, captureBeyondViewport=True)
        self.ask("Target.closeTarget", targetId=target)
        events = [(event["method"], event.get("params", {})) for event in self.events]
        asked = [p["request"]["url"] for m, p in events if m == "Network.requestWillBeSent"]
        logged = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
        said = [json.dumps(p) for m, p in events if m in logged]
        picture = base64.b64decode(shot["data"])
        return Shown(picture, width, content_width, asked, said, facts)

    def _value(self, session: str, script: str) -> Any:
        answer = self.ask("Runtime.evaluate", session, expression=script, returnByValue=True)
        return answer["result"].get("value")
