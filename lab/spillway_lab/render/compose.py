"""The lab's part of the process-compose project, which is merged with the stack's other files."""

import shlex

from spillway_lab.render.pods import HOST, Plan, Pod
from spillway_lab.render.surroundings import Surroundings


def compose(layout: Plan, environments: dict[str, dict[str, str]], around: Surroundings) -> dict:
    """Returns the project: an emulator and an Envoy per pod, and the keeper of the WAN's delays."""
    processes = {}
    for pod in layout.pods:
        processes[pod.name] = _emulator(pod, environments[pod.name], around)
        processes[f"{pod.name}-envoy"] = _envoy(pod, around)
    processes["wan"] = _wan(layout.wan_health_port, around)
    return {"version": "0.5", "processes": processes}


def _emulator(pod: Pod, environment: dict[str, str], around: Surroundings) -> dict:
    command = [around.emulator]
    return _process(pod.name, command, around, pod.health_port, "/readyz") | {
        "environment": [_escape(f"{key}={value}") for key, value in environment.items()]
    }


def _envoy(pod: Pod, around: Surroundings) -> dict:
    # Each Envoy has one worker because pods are small and many. Hot restart is off because copies
    # on one machine would share its base id.
    bootstrap = str(around.out / "envoy" / f"{pod.name}.yaml")
    command = [around.envoy, "-c", bootstrap, "--concurrency", "1", "--disable-hot-restart", "-l", "warning"]
    return _process(f"{pod.name}-envoy", command, around, pod.admin_port, "/ready")


def _wan(health_port: int, around: Surroundings) -> dict:
    command = [around.python, "-m", "spillway_lab", "wan", "--plan", str(around.out / "wan.json")]
    command += ["--toxiproxy", around.toxiproxy]
    return _process("wan", command, around, health_port, "/readyz") | {
        "environment": [f"SPILLWAY_HEALTH_LISTEN={HOST}:{health_port}"]
    }


def _process(name: str, command: list[str], around: Surroundings, port: int, path: str) -> dict:
    return {
        # exec replaces the shell, so that signals reach the program itself.
        "command": _escape("exec " + shlex.join(command)),
        "readiness_probe": {
            "http_get": {"host": HOST, "port": str(port), "path": path},
            "period_seconds": 3,
            "failure_threshold": 20,
        },
        # Only a configuration error (exit code 64) would repeat. The delay keeps such a process
        # from restarting in a tight loop.
        "availability": {"restart": "on_failure", "backoff_seconds": 1},
        "shutdown": {"signal": 15, "timeout_seconds": 10},
        "log_location": _escape(str(around.out / "log" / f"{name}.log")),
    }


def _escape(text: str) -> str:
    """Escapes dollar signs, because process-compose expands $NAME everywhere and reads $$ as $."""
    return text.replace("$", "$$")
