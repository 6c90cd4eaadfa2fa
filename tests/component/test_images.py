"""The images' Dockerfiles, checked with BuildKit's own parser and linter, without running any."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from spillway_lab.testing.servers import ROOT

pytestmark = pytest.mark.component
TOOL = ["go", "run", "."]
# Exact versions, so that two builds of a commit have the same base. A digest can be used like this:
# docker build --build-arg PYTHON=python@sha256:...
PINNED = re.compile(r"[\w./-]+:v?\d+\.\d+(\.\d+)?(-[\w.]+)*")
TRACKED = subprocess.run(
    ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
).stdout.split()
DOCKERFILES = [path for path in TRACKED if path.endswith("Dockerfile")]
BUILD_TOOLS = re.compile(r"\b(apt-get|pip|cargo|rustup|gcc|make|go build)\b")
ARCHITECTURE = re.compile(r"amd64|x86[_-]64|arm64|aarch64")
COMPILES = re.compile(r"\b(go|cargo) build\b|\./build\b")
CROSS = ("GOOS=$TARGETOS", "GOARCH=$TARGETARCH")


def tool(*arguments: str) -> str:
    done = subprocess.run(
        [*TOOL, *arguments], cwd=ROOT / "tools/dockerfile", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def files() -> dict[str, dict]:
    """The parsed Dockerfiles, by path."""
    parsed = json.loads(tool(*(str(ROOT / path) for path in DOCKERFILES)))
    return {str(Path(path).relative_to(ROOT)): file for path, file in parsed.items()}


@pytest.fixture(scope="module")
def context() -> set[str]:
    """Tracked files that .dockerignore lets into the build context."""
    kept_out = set(tool("-ignored", str(ROOT / ".dockerignore"), *TRACKED).split("\n"))
    return set(TRACKED) - kept_out


def steps(stage: dict, name: str) -> list[dict]:
    return [step for step in stage["instructions"] if step["name"] == name]


def sources(step: dict, context: set[str]) -> dict[str, str]:
    """Returns the target in the image of each file of the context that a COPY names."""
    found = {}
    for source in step["sources"]:
        pattern = re.compile(re.escape(source).replace(r"\*", "[^/]*"))
        for path in sorted(context):
            if pattern.fullmatch(path):
                into = step["target"].endswith("/")
                found[path] = step["target"] + Path(path).name if into else step["target"]
            elif path.startswith(f"{source}/"):
                found[path] = f"{step['target'].rstrip('/')}/{path.removeprefix(source + '/')}"
    return found


@pytest.mark.parametrize("path", DOCKERFILES)
def test_an_image_is_lean_and_not_root(files: dict, path: str):
    """BuildKit's linter finds nothing, and builds happen in other stages than the last.

    The last stage has a numeric user, which Kubernetes can distinguish from root, and labels. It
    also has a health check or a reason for none, and no build tool.
    """
    file = files[path]
    assert file["warnings"] == []
    assert len(file["stages"]) > 1
    last = file["stages"][-1]
    assert [s["text"] for s in steps(last, "USER")] == ["USER 10001"]
    assert len(steps(last, "HEALTHCHECK")) == 1
    labels = " ".join(s["text"] for s in steps(last, "LABEL"))
    for label in ("title", "description", "licenses"):
        assert f"org.opencontainers.image.{label}" in labels
    assert [s["text"] for s in steps(last, "RUN") if BUILD_TOOLS.search(s["text"])] == []
    assert steps(last, "ADD") == []


def test_bases_are_pinned_and_agree(files: dict):
    """Every base is an argument with an exact tag. An argument has the same tag in all images."""
    pins: dict[str, str] = {}
    for path, file in files.items():
        for stage in file["stages"]:
            assert re.fullmatch(r"\$\{[A-Z]+\}", stage["base"]), path
            name = stage["base"][2:-1]
            assert PINNED.fullmatch(file["arguments"][name]), path
            assert pins.setdefault(name, file["arguments"][name]) == file["arguments"][name], path


@pytest.mark.parametrize("path", DOCKERFILES)
def test_what_is_copied_is_there(files: dict, context: set[str], path: str):
    """Each source is tracked and not ignored by .dockerignore. Each source stage exists."""
    names = {stage["name"] for stage in files[path]["stages"]}
    for stage in files[path]["stages"]:
        for step in steps(stage, "COPY"):
            if step.get("from"):
                assert step["from"] in names
            else:
                for source in step["sources"]:
                    assert sources(step | {"sources": [source]}, context), f"{path}: {source}"


def test_the_build_context_has_no_secret_and_no_test(context: set[str]):
    """.dockerignore lists what is allowed.

    It lets in no repository data, documentation, Python tests or environment files.
    """
    odd = [p for p in context if re.match(r"(\.|docs/|tests/|terraform/|infra/(nats|helm))", p)]
    odd += [
        p
        for p in context
        if re.search(r"(^|/)(tests/.*\.py|.*_test\.go|\.env)$", p) and not p.startswith("collectors")
    ]
    assert [p for p in odd if not p.startswith(("wasm/", "streams/native"))] == []


@pytest.mark.parametrize("path", DOCKERFILES)
def test_an_image_is_made_for_every_platform(files: dict, path: str):
    """No step and no base names an architecture.

    A stage that runs on the builder's platform compiles for the target platform, or to WebAssembly,
    which has none. Go can cross-compile and is never compiled under emulation.
    """
    *builders, last = files[path]["stages"]
    texts = [*files[path]["arguments"].values()]
    texts += [step["text"] for stage in files[path]["stages"] for step in stage["instructions"]]
    assert [text for text in texts if ARCHITECTURE.search(text)] == []
    assert "platform" not in last
    for stage in builders:
        assert stage.get("platform", "$BUILDPLATFORM") == "$BUILDPLATFORM"
        assert "platform" in stage or stage["base"] != "${GOLANG}"
        if "platform" in stage:
            compiled = [step["text"] for step in steps(stage, "RUN") if COMPILES.search(step["text"])]
            assert compiled
            foreign = [text for text in compiled if "--target wasm32-" not in text]
            assert [text for text in foreign if not all(part in text for part in CROSS)] == []
            assert not foreign or "ARG TARGETOS TARGETARCH" in [s["text"] for s in steps(stage, "ARG")]
