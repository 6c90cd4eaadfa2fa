"""`make images`, as planned by docker buildx itself.

Nothing is built, because there is no container engine here.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import charts
import pytest
from cluster_chart import EVERYTHING
from spillway_lab.testing.programs import program
from spillway_lab.testing.servers import ROOT

pytestmark = pytest.mark.deploy
REGISTRY = "registry.example/spillway"
VERSION = (ROOT / "VERSION").read_text().strip()
GLOBAL = {"image": {"registry": REGISTRY}, "kafka": {"brokers": "kafka:9093", "clusters": ["west"]}}


def git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@example.org", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def images(
    folder: Path, docker: str, root: Path = ROOT, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Runs tools/images of a checkout, with `docker` replaced by this line of shell."""
    stand_in = folder / "docker"
    stand_in.write_text(f"#!/bin/sh\n{docker}\n")
    stand_in.chmod(0o755)
    unset = {"REGISTRY", "VERSION", "PLATFORMS", "PUSH", "DRY_RUN", "SOURCE"}
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment |= {"PATH": f"{folder}:{os.environ['PATH']}", **variables}
    return subprocess.run(
        [root / "tools/images"], env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository with the committed files that `make images` reads."""
    root = tmp_path / "clone"
    for file in ("tools/images", "docker-bake.hcl", "VERSION"):
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, root / file)
    for command in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "a")):
        git(root, *command)
    return root


@pytest.fixture
def buildx() -> str:
    """The shell line by which the docker command runs its plugin."""
    return f'shift; exec {program("buildx")} "$@"'


def plan(folder: Path, buildx: str, root: Path = ROOT, **variables: str) -> dict[str, dict]:
    """Returns targets by name, as `make images DRY_RUN=1` prints them."""
    done = images(folder, buildx, root, REGISTRY=REGISTRY, DRY_RUN="1", **variables)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["target"]


def title(dockerfile: str) -> str:
    [found] = re.findall(r'org\.opencontainers\.image\.title="(.+)"', (ROOT / dockerfile).read_text())
    return found


def test_every_dockerfile_is_one_image_of_its_title(tmp_path: Path, buildx: str):
    """The build context is the repository, as the Dockerfiles require."""
    targets = plan(tmp_path, buildx)
    files = git(ROOT, "ls-files", "*Dockerfile").split()
    assert {t["dockerfile"]: name for name, t in targets.items()} == {file: title(file) for file in files}
    assert len(targets) == len(files)
    assert {target["context"] for target in targets.values()} == {"."}


def test_charts_find_their_images_by_the_tag_that_they_take_unasked(tmp_path: Path, buildx: str):
    """The tags include every image that a chart can name if its values set only the registry."""
    tags = {tag for target in plan(tmp_path, buildx).values() for tag in target["tags"]}
    objects = charts.render(ROOT / "infra/helm/spillway-global", GLOBAL)
    objects += charts.render(ROOT / "infra/helm/spillway-cluster", EVERYTHING)
    taken = set(re.findall(rf"{REGISTRY}/[\w-]+:[\w.-]+", json.dumps(objects)))
    assert taken <= tags
    templates = (ROOT / "infra/helm").glob("spillway-*/templates/**/*")
    named = {
        name
        for path in templates
        if path.is_file()
        for name in re.findall(r'"image" "(spillway-[\w-]+)"', path.read_text())
    }
    assert {tag.rpartition("/")[2].partition(":")[0] for tag in taken} == named


def test_an_image_says_what_it_is_made_of(tmp_path: Path, buildx: str):
    """An image has version and commit as tags and labels, and both platforms.

    It also has an SBOM and provenance, and the result is a file.
    """
    commit = git(ROOT, "rev-parse", "HEAD")
    for name, target in plan(tmp_path, buildx, SOURCE="https://git.example/spillway").items():
        [version, revision] = target["tags"]
        assert version == f"{REGISTRY}/{name}:{VERSION}"
        assert revision.removesuffix("-dirty") == f"{REGISTRY}/{name}:{commit}"
        assert target["labels"] == {
            "org.opencontainers.image.version": VERSION,
            "org.opencontainers.image.revision": revision.rpartition(":")[2],
            "org.opencontainers.image.source": "https://git.example/spillway",
        }
        assert target["platforms"] == ["linux/amd64", "linux/arm64"]
        assert {(a["type"], a.get("mode")) for a in target["attest"]} == {
            ("sbom", None),
            ("provenance", "max"),
        }
        assert target["output"] == [{"type": "oci", "dest": f"dist/images/{name}.tar"}]


def test_what_is_asked_for_is_planned(tmp_path: Path, buildx: str):
    """Another version, a single platform and a push can be requested."""
    targets = plan(tmp_path, buildx, VERSION="1.2.3-rc.1", PLATFORMS="linux/arm64", PUSH="1")
    for name, target in targets.items():
        assert target["tags"][0] == f"{REGISTRY}/{name}:1.2.3-rc.1"
        assert target["platforms"] == ["linux/arm64"]
        assert target["output"] == [{"type": "registry"}]


def test_the_address_of_the_source_is_without_a_token(tmp_path: Path, buildx: str, clone: Path):
    """A label is public, but a clone's address may hold a name and a password, or be a folder."""
    git(clone, "remote", "add", "origin", "https://user:token@git.example/a")
    assert sources(plan(tmp_path, buildx, clone)) == {"https://git.example/a"}
    git(clone, "remote", "set-url", "origin", "/srv/a")
    assert sources(plan(tmp_path, buildx, clone)) == {None}


def sources(targets: dict[str, dict]) -> set[str | None]:
    return {target["labels"].get("org.opencontainers.image.source") for target in targets.values()}


def test_without_buildx_the_command_says_what_to_install(tmp_path: Path):
    done = images(tmp_path, "exit 1", REGISTRY=REGISTRY)
    assert done.returncode == 69
    assert "docker buildx is missing" in done.stderr and "docker-buildx-plugin" in done.stderr


def test_without_a_registry_the_command_says_how_it_is_called(tmp_path: Path):
    done = images(tmp_path, "exit 1")
    assert done.returncode == 64 and done.stderr.startswith("usage: make images REGISTRY=")


def test_nothing_is_pushed_that_no_commit_names(tmp_path: Path, clone: Path):
    """Uncommitted changes are built, but only locally."""
    docker = f'echo "$PUSH $@" >>{tmp_path}/ran'

    def ran(**variables: str) -> tuple[int, str]:
        (tmp_path / "ran").write_text("")
        code = images(tmp_path, docker, clone, REGISTRY=REGISTRY, **variables).returncode
        return code, (tmp_path / "ran").read_text()

    build = "buildx bake --file docker-bake.hcl\n"
    assert ran(PUSH="1") == (0, f"1 buildx version\n1 {build}")
    (clone / "VERSION").write_text("9.9.9\n")
    assert ran(PUSH="1") == (65, "1 buildx version\n")
    code, lines = ran()
    assert code == 0 and lines.endswith(build)
