"""The README's code runs and prints what the README says; its commands and links exist."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

REPOSITORY = Path(__file__).parents[1]
README = REPOSITORY / "README.md"

# A fenced block, and the line number of its first line of content.
FENCE = re.compile(r"^```(?P<language>[^\n`]*)\n(?P<body>.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A python block of a Markdown text, with what the text block right below it says it prints."""

    line: int
    code: str
    output: str | None


def python_blocks(markdown: str) -> list[Block]:
    """Blank lines or one line that ends in a colon may stand between a python block and its output."""
    fences = list(FENCE.finditer(markdown))
    blocks = []
    for index, fence in enumerate(fences):
        if fence["language"].strip() != "python":
            continue
        output = None
        if index + 1 < len(fences):
            below = fences[index + 1]
            between = markdown[fence.end() : below.start()].strip()
            adjoins = not between or ("\n" not in between and between.endswith(":"))
            if below["language"].strip() == "text" and adjoins:
                output = below["body"]
        blocks.append(Block(markdown.count("\n", 0, fence.start("body")) + 1, fence["body"], output))
    return blocks


# The blocks run one after the other in one namespace, as a reader would enter them. Each is shifted down to
# its own line, so that a traceback names the README's lines.
RUN_BLOCKS = """
import contextlib, io, json, sys
outputs, namespace = [], {"__name__": "__main__"}
for line, code, _ in json.load(open("blocks.json")):
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile("\\n" * (line - 1) + code, "README.md", "exec"), namespace)
    outputs.append(printed.getvalue())
json.dump(outputs, open("outputs.json", "w"))
"""


def printed_by(blocks: list[Block], folder: Path) -> list[str]:
    (folder / "blocks.json").write_text(json.dumps(blocks))
    result = subprocess.run([sys.executable, "-c", RUN_BLOCKS], cwd=folder, capture_output=True, text=True, timeout=500)
    assert result.returncode == 0, result.stderr
    return json.loads((folder / "outputs.json").read_text())


def lines_of(printed: str) -> list[str]:
    return [line.rstrip() for line in printed.strip("\n").split("\n")]


def test_the_code_runs_and_prints_what_is_shown(tmp_path):
    blocks = python_blocks(README.read_text())
    for block, printed in zip(blocks, printed_by(blocks, tmp_path), strict=True):
        if block.output is not None:
            assert lines_of(printed) == lines_of(block.output), f"README.md:{block.line}"


EXAMPLE = """\
A picture:

```text
q -> k
```

```python
x = 1
print(x + 1)
```

```text
2
```

It goes on:

```python
print(x)
```
prints:
```text
3
```
```python
x
```
Something else entirely.

```text
picture
```
"""


def test_blocks_are_found_with_their_outputs():
    assert python_blocks(EXAMPLE) == [
        Block(8, "x = 1\nprint(x + 1)\n", "2\n"),
        Block(19, "print(x)\n", "3\n"),
        Block(26, "x\n", None),
    ]


def test_what_blocks_print_is_what_is_compared(tmp_path):
    assert printed_by(python_blocks(EXAMPLE), tmp_path) == ["2\n", "1\n", ""]


def test_a_failing_block_is_reported_at_its_line(tmp_path):
    with pytest.raises(AssertionError, match=r"README.md.*line 4(.|\n)*ZeroDivisionError"):
        printed_by(python_blocks("\n\n```python\n1 / 0\n```\n"), tmp_path)


def named_targets(markdown: str) -> set[str]:
    """Targets of `make` at the start of a line of code or of an inline code span."""
    return set(re.findall(r"(?:^[ \t]*(?:\$ )?|`)make ([a-z][a-z-]*)", markdown, re.MULTILINE))


def defined_targets(makefile: str) -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))


def test_the_make_targets_exist():
    named = named_targets(README.read_text())
    assert {"demo", "test"} <= named
    assert named <= defined_targets((REPOSITORY / "Makefile").read_text())


def test_make_targets_are_found():
    assert named_targets("`make one`, then\n\n    make two-a\n\n```\n$ make three\n```\nto make sure") == {
        "one",
        "two-a",
        "three",
    }


def broken_links(document: Path) -> list[str]:
    """Relative link and image targets of a Markdown file that lead nowhere."""
    prose = FENCE.sub("", document.read_text())
    targets = re.findall(r"\]\(\s*<?([^)\s>]+)", prose)
    targets += re.findall(r"^\[[^\]]+\]:\s*(\S+)", prose, re.MULTILINE)
    targets += re.findall(r"<(?:img|a|source)\b[^>]*?\b(?:src|href|srcset)=\"([^\"]+)\"", prose)
    paths = [target.partition("#")[0] for target in targets if not re.match(r"[a-z][a-z+.-]*:", target)]
    return [path for path in paths if path and not (document.parent / path).exists()]


DOCUMENTS = [path for path in REPOSITORY.glob("*.md")] + [
    path for path in REPOSITORY.glob("*/*.md") if not path.parent.name.startswith(".")
]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_relative_links_lead_somewhere(document):
    assert not broken_links(document)


def test_a_broken_link_is_found(tmp_path):
    (tmp_path / "there.md").touch()
    document = tmp_path / "page.md"
    document.write_text(
        "[a](there.md#part) [b](https://example.org/x) [c](#here) ![d](gone.png)\n"
        '<img src="gone.svg" width="3"> [e]\n\n[e]: gone.md\n\n```text\n[f](code.md)\n```\n'
    )
    assert broken_links(document) == ["gone.png", "gone.md", "gone.svg"]


def test_the_ten_lines_are_the_quickstart():
    quickstart = (REPOSITORY / "examples" / "quickstart.py").read_text(encoding="utf-8")
    code = next(
        fence["body"] for fence in FENCE.finditer(README.read_text(encoding="utf-8")) if fence["language"] == "python"
    )
    assert quickstart.endswith(code)


def test_tables_are_what_the_records_say():
    result = subprocess.run(
        [sys.executable, REPOSITORY / "benchmarks" / "report.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
