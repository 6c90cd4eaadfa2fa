"""A reader who follows a page of docs/start: clusters in ~/.kube/config, a checkout, one bash."""

import os
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from kube_region import Region
from spillway_lab.testing.documents import Block
from spillway_lab.testing.servers import BIN, ROOT

_ENDED, _FAILED = "@@ended@@", "@@failed@@"


def write_kubeconfig(home: Path, regions: list[Region]) -> None:
    """Writes a kubeconfig with one context per region, named after the region."""
    merged: dict = {"apiVersion": "v1", "kind": "Config", "clusters": [], "users": [], "contexts": []}
    for region in regions:
        config = yaml.safe_load(region.kubeconfig.read_text())
        config["users"][0]["name"] = config["contexts"][0]["context"]["user"] = region.name
        for key in ("clusters", "users", "contexts"):
            merged[key] += config[key]
    (home / ".kube").mkdir(parents=True)
    (home / ".kube/config").write_text(yaml.safe_dump(merged))


@dataclass
class Reader:
    """A bash in which the page's commands are typed.

    `environment` holds the variables that the page assumes to be exported. `seconds` holds the
    duration of each step's commands.
    """

    home: Path
    environment: dict[str, str]
    seconds: dict[str, float] = field(default_factory=dict)
    _bash: subprocess.Popen | None = None

    def __enter__(self) -> "Reader":
        unset = {"SPILLWAY_TERRAFORM", "SPILLWAY_MAP", "KUBECONFIG"}
        outside = {name: value for name, value in os.environ.items() if name not in unset}
        variables = {
            "HOME": str(self.home),
            "PATH": f"{BIN}:{ROOT / '.spillway/bin'}:{os.environ['PATH']}",
            "SPILLWAY_BACKEND": f"path={self.home}/{{name}}.tfstate",
            "SPILLWAY_WORK": str(self.home / "work"),
            "TF_CLI_CONFIG_FILE": str(ROOT / ".spillway/deploy/cli.tfrc"),
        }
        self._bash = subprocess.Popen(
            ["bash"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            cwd=ROOT, env=outside | variables | self.environment,
        )  # fmt: skip
        self._write(f"""set -o pipefail; trap 'echo "{_FAILED} $? $BASH_COMMAND"' ERR\n""")
        return self

    def __exit__(self, *_: object) -> None:
        assert self._bash and self._bash.stdin
        self._bash.stdin.close()
        self._bash.wait(60)

    def _write(self, text: str) -> None:
        assert self._bash and self._bash.stdin
        self._bash.stdin.write(text)
        self._bash.stdin.flush()

    def types(self, block: Block) -> tuple[str, list[str]]:
        """Runs a block and returns its output and the commands that failed.

        A failed command is given as "<exit code> <command>".
        """
        began = time.monotonic()
        lines = self._run(block.text)
        self.seconds[block.step] = self.seconds.get(block.step, 0) + time.monotonic() - began
        failed = [line.partition(_FAILED)[2].strip() for line in lines if _FAILED in line]
        printed = "".join(lines)
        print(f"$ {block.text}{printed}")
        return printed, failed

    def variable(self, name: str) -> str:
        return "".join(self._run(f'echo "${name}"')).strip()

    def _run(self, text: str) -> list[str]:
        """Returns the lines that the text prints."""
        assert self._bash and self._bash.stdout
        lines: list[str] = []
        self._write(f"{text}\nprintf '\\n%s\\n' {_ENDED}\n")
        for line in self._bash.stdout:
            if line.strip() == _ENDED:
                return lines
            lines.append(line)
        raise AssertionError(f"bash has ended: {''.join(lines)[-2000:]}")

    def table(self) -> str:
        return "\n".join(f"| {step} | {seconds:.0f} s |" for step, seconds in self.seconds.items())
