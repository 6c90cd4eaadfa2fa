"""The example of many regions as its users run it: the map is a file and `apply` a command."""

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
    """Returns the lines of a document's code blocks that call `apply`, without their comments."""
    lines = re.findall(r"^ *(\./apply\b.*)$", document.read_text(), re.MULTILINE)
    return [line.partition("#")[0].strip() for line in lines]


@dataclass
class Example:
    """A copy of the example with its own map and states.

    `map` is the content of regions.yaml. `regions` holds the clusters by name, with the global one
    as `global`. `program` is the program for SPILLWAY_TERRAFORM. `ran` holds the command lines that
    were run.
    """

    folder: Path
    map: dict
    regions: dict[str, Region] = field(default_factory=dict)
    program: str = "tofu"
    ran: set[str] = field(default_factory=set)

    def place(self, name: str, region: Region) -> None:
        """Enters in the map how to reach the cluster."""
        self.regions[name] = region
        entry = self.map["global"] if name == "global" else self.map["regions"][name]
        if name != "global":  # the applications' namespaces are the users' own
            for namespace in entry["namespaces"]:
                region.kubectl("create", "namespace", namespace)
        entry["kubernetes"] = {"kubeconfig": str(region.kubeconfig), "context": region.name}

    def write(self) -> None:
        (self.folder / "regions.yaml").write_text(yaml.safe_dump(self.map, sort_keys=False))

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Writes the map and runs `apply` with arguments. A failed test shows the output."""
        return self.shell(" ".join(["./apply", *arguments]))

    def shell(self, line: str) -> subprocess.CompletedProcess[str]:
        """Writes the map and runs a command line of a document in the example's folder."""
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
        """Returns the text of a state. `name` is global or region-<region>."""
        return (self.folder / f"{name}.tfstate").read_text()

    def outputs(self) -> dict:
        return {name: output["value"] for name, output in json.loads(self.state("global"))["outputs"].items()}

    def config_map(self, region: str, name: str, key: str) -> str:
        return self.object(region, "configmap", name)["data"][key]

    def object(self, region: str, kind: str, name: str, namespace: str = "spillway") -> dict:
        return json.loads(self.regions[region].kubectl("get", kind, name, "-n", namespace, "-o", "json"))


def changes(done: subprocess.CompletedProcess[str]) -> dict[str, set[str]]:
    """Parses the output of `apply plan`: region -> planned changes of objects."""
    found = {}
    for line in done.stdout.splitlines():
        name, _, rest = line.partition(" ")
        rest = rest.strip().rpartition(" (")[0]
        found[name] = set() if rest == "no changes" else set(rest.split("; "))
    return found
