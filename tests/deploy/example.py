"""The example of many regions as its users run it: the map is a file, `apply` is a command."""

import json
import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from kube_region import Region, program
from spillway_lab.testing.servers import ROOT

EXAMPLE = ROOT / "terraform" / "examples" / "multi-region"
TIMEOUT_S = 900
README, UPGRADING = ROOT / "terraform" / "README.md", ROOT / "UPGRADING.md"


def commands(document: Path) -> list[str]:
    """The lines of a document's code blocks that call `apply`, as they stand there, without their comment."""
    lines = re.findall(r"^ *(\./apply\b.*)$", document.read_text(), re.MULTILINE)
    return [line.partition("#")[0].strip() for line in lines]


@dataclass
class Example:
    """`map` is what regions.yaml holds; `regions` are the clusters by name, the global one is `global`; `program` is
    what SPILLWAY_TERRAFORM names; `ran` are the command lines that were run."""

    folder: Path
    map: dict
    regions: dict[str, Region] = field(default_factory=dict)
    program: str = "tofu"
    ran: set[str] = field(default_factory=set)

    def place(self, name: str, region: Region) -> None:
        """Says in the map how the cluster is reached."""
        self.regions[name] = region
        entry = self.map["global"] if name == "global" else self.map["regions"][name]
        if name != "global":  # the applications' namespaces are the users' own
            for namespace in entry["namespaces"]:
                region.kubectl("create", "namespace", namespace)
        entry["kubernetes"] = {"kubeconfig": str(region.kubeconfig), "context": region.name}

    def write(self) -> None:
        (self.folder / "regions.yaml").write_text(yaml.safe_dump(self.map, sort_keys=False))

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`apply` with arguments, after the map is written; its words are shown when a test fails."""
        return self.shell(" ".join(["./apply", *arguments]))

    def shell(self, line: str) -> subprocess.CompletedProcess[str]:
        """A command line as a document has it, in the example's folder, after the map is written."""
        self.write()
        self.ran.add(line)
        environment = os.environ | {
            "SPILLWAY_MAP": str(self.folder / "regions.yaml"),
            "SPILLWAY_TERRAFORM": program(self.program),
            "SPILLWAY_BACKEND": f"path={self.folder}/{{name}}.tfstate",
            "SPILLWAY_WORK": str(self.folder / "work"),
            "TF_CLI_CONFIG_FILE": str(ROOT / ".spillway" / "deploy" / "cli.tfrc"),
        }
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=EXAMPLE,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        print(f"$ {line} -> {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def apply(self) -> None:
        done = self.run()
        assert done.returncode == 0, done.stdout + done.stderr

    def state(self, name: str) -> str:
        """The state's text; name is global or region-<region>."""
        return (self.folder / f"{name}.tfstate").read_text()

    def outputs(self) -> dict:
        return {name: one["value"] for name, one in json.loads(self.state("global"))["outputs"].items()}

    def config_map(self, region: str, name: str, key: str) -> str:
        return self.object(region, "configmap", name)["data"][key]

    def object(self, region: str, kind: str, name: str, namespace: str = "spillway") -> dict:
        return json.loads(self.regions[region].kubectl("get", kind, name, "-n", namespace, "-o", "json"))


def changes(done: subprocess.CompletedProcess[str]) -> dict[str, set[str]]:
    """`apply plan`'s words: by region, what would happen to which object."""
    found = {}
    for line in done.stdout.splitlines():
        name, _, rest = line.partition(" ")
        rest = rest.strip().rpartition(" (")[0]
        found[name] = set() if rest == "no changes" else set(rest.split("; "))
    return found
