"""The fenced blocks of a Markdown page, run from top to bottom the way a reader would.

```python                  runs; all blocks of a page share one namespace
```python title="main.py"  is also written to that file, for the commands below it
```json title="rows.json"  (any language with a title) is written to that file
```bash                    lines that begin with `benchmax` run and must end with 0, or with N under exit="N"
```text                    right after a block that ran: what it printed; a line with … matches anything there

`http://localhost:8000/v1` stands for the reader's own model server; here it is a fake one.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forked_commands import ForkedCommands

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
SERVER = "http://localhost:8000/v1"
TYPED_ELSEWHERE = ("pip ", "make ", "git ", "cd ", "export ", "python examples/", "#")
"""Beginnings of bash lines that are not run here; the examples have a test of their own."""

_FENCE = re.compile(r"^(?P<fence>```+)(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=fence)[ \t]*$", re.MULTILINE | re.DOTALL)
_OPTION = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block."""

    language: str
    options: dict[str, str]
    body: str
    line: int
    touches_last: bool
    """Whether only blank lines lie between this block and the one before it."""


def blocks_of(text: str) -> list[Block]:
    found, end = [], 0
    for match in _FENCE.finditer(text):
        language, _, rest = match["info"].strip().partition(" ")
        options = dict(_OPTION.findall(rest))
        assert not _OPTION.sub("", rest).strip(), f"unknown mark {rest!r} on a block"
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(language, options, match["body"], line, not text[end : match.start()].strip()))
        end = match.end()
    return found


class Reader:
    """Follows a page in a directory of its own."""

    def __init__(self, page: Path, directory: Path, server: str, commands: ForkedCommands) -> None:
        self.page, self.directory, self.server, self.commands = page, directory, server, commands
        self.namespace: dict[str, Any] = {"__name__": f"docs_{page.stem}"}
        self.printed: str | None = None

    def follow(self) -> None:
        for block in blocks_of(self.page.read_text()):
            body = block.body.replace(SERVER, self.server)
            if "title" in block.options:
                (self.directory / block.options["title"]).write_text(body)
            if block.language == "python":
                self.printed = self._python(body, block.line)
            elif block.language == "bash":
                self.printed = self._bash(body, int(block.options.get("exit", 0)), block.line)
            elif block.language == "text" and block.touches_last and self.printed is not None:
                self._compare(body, block.line)
                self.printed = None
            else:
                assert block.language, f"{self.page.name}:{block.line} names no language"
                self.printed = None

    def _python(self, body: str, line: int) -> str:
        out = io.StringIO()
        # Blank lines in front, so that a traceback names the line of the page.
        code = compile("\n" * line + body, str(self.page), "exec")
        with contextlib.redirect_stdout(out):
            exec(code, self.namespace)
        return out.getvalue()

    def _bash(self, body: str, expected: int, line: int) -> str | None:
        printed = None
        for command in body.replace("\\\n", " ").splitlines():
            if not command.strip() or command.startswith(TYPED_ELSEWHERE):
                continue
            assert command.startswith("benchmax "), f"{self.page.name}:{line} cannot be run here: {command}"
            printed = (printed or "") + self._command(command, expected, line)
        return printed

    def _command(self, command: str, expected: int, line: int) -> str:
        home = str(self.directory / ".benchmax")
        result = self.commands.run(shlex.split(command)[1:], self.directory, BENCHMAX_HOME=home)
        said = f"{self.page.name}:{line}: {command}\n{result.stdout}{result.stderr}"
        assert result.returncode == expected, f"ended with {result.returncode}, not {expected}: {said}"
        return result.stdout

    def _compare(self, shown: str, line: int) -> None:
        wanted = [re.escape(part.rstrip()).replace("…", ".*") for part in shown.strip("\n").splitlines()]
        got = "\n".join(part.rstrip() for part in (self.printed or "").strip("\n").splitlines())
        told = f"{self.page.name}:{line} shows\n{shown}\nbut this was printed:\n{got}"
        assert re.fullmatch("\n".join(wanted), got, re.DOTALL), told
