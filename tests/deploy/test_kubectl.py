"""kubectl parses each kubectl command of docs/operations.md, UPGRADING.md and docs/start.

Of docs/start only the commands that need running pods are tested here (the others: test_start.py).
"""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from kube_region import program
from spillway_lab.testing.documents import FIRST_DAY, blocks
from spillway_lab.testing.servers import ROOT

pytestmark = pytest.mark.deploy
NOBODY = "http://127.0.0.1:1"
PAGE = (ROOT / "docs" / "operations.md").read_text() + (ROOT / "UPGRADING.md").read_text()
SPANS = (" ".join(span.split()) for span in re.findall(r"(?<!`)`([^`]+)`(?!`)", PAGE))
BLOCKS = re.findall(r"^ {4,}(kubectl .+)$", PAGE, re.MULTILINE)
# The reader chooses the contexts.
EXEC = [
    line.replace(" --context west", "")
    for page in FIRST_DAY
    for block in blocks(page)
    if block.needs_spans
    for line in block.text.splitlines()
]
COMMANDS = sorted({span for span in (*SPANS, *BLOCKS, *EXEC) if span.startswith("kubectl ")})


def test_the_page_has_commands():
    """There are at least as many as when this was written.

    A new format of the page could otherwise hide them.
    """
    assert len(COMMANDS) >= 12


@pytest.mark.parametrize("command", COMMANDS)
def test_kubectl_understands_a_command(command: str, tmp_path: Path):
    """kubectl accepts every argument and then fails to reach the server, which does not exist."""
    arguments = shlex.split(command)[1:]
    end = arguments.index("--") if "--" in arguments else len(arguments)
    where = ["--server", NOBODY, "--cache-dir", str(tmp_path), "--request-timeout", "5s"]
    done = subprocess.run(
        [program("kubectl"), *arguments[:end], *where, *arguments[end:]],
        env=os.environ | {"KUBECONFIG": os.devnull}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert NOBODY.removeprefix("http://") in done.stderr, done.stderr
