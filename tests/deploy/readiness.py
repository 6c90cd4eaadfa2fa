"""The state that a namespace of Spillway must reach after it is applied."""

import time

from kube_region import Region

READY_S = 240


def wait_ready(region: Region, namespace: str = "spillway") -> set[str]:
    """Waits until every workload is ready and every Job is done.

    Returns their names, e.g. deployment/x.
    """
    deadline = time.monotonic() + READY_S
    while waiting := [name for name, ready in workloads(region, namespace).items() if not ready]:
        assert time.monotonic() < deadline, f"{region.name}, {namespace}: not ready: {waiting}"
        time.sleep(1)
    return set(workloads(region, namespace))


def workloads(region: Region, namespace: str = "spillway") -> dict[str, bool]:
    """Returns name -> whether it is ready, with at least its autoscaler's minimum of pods."""
    least, found = {}, {}
    for scaler in region.items("hpa", namespace):
        target = scaler["spec"]["scaleTargetRef"]
        least[f"{target['kind'].lower()}/{target['name']}"] = scaler["spec"]["minReplicas"]
    for kind in ("deployment", "statefulset"):
        for one in region.items(kind, namespace):
            name = f"{kind}/{one['metadata']['name']}"
            wanted, status = one["spec"]["replicas"], one["status"]
            current = status.get("observedGeneration", 0) >= one["metadata"]["generation"]
            ready = status.get("readyReplicas", 0) == status.get("updatedReplicas", 0) == wanted
            found[name] = current and ready and wanted >= least.get(name, 1)
    for one in region.items("daemonset", namespace):
        status = one["status"]
        ready = status.get("numberReady", 0) == status.get("desiredNumberScheduled", 0) > 0
        found[f"daemonset/{one['metadata']['name']}"] = (
            ready and status.get("observedGeneration", 0) >= one["metadata"]["generation"]
        )
    for job in region.items("job", namespace):
        found[f"job/{job['metadata']['name']}"] = job["status"].get("succeeded", 0) > 0
    return found


def pods(region: Region) -> dict[str, str]:
    """Returns name -> identity of each pod. Another identity means another pod."""
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in region.items("pod")}


def missing_references(region: Region, namespace: str = "spillway") -> list[str]:
    """Returns the Secrets, ConfigMaps and keys that a pod names and that do not exist.

    kwok's pods would run without them.
    """
    have = {
        f"{kind}/{one['metadata']['name']}": set(one.get("data", {})) | set(one.get("binaryData", {}))
        for kind in ("secret", "configmap")
        for one in region.items(kind, namespace)
    }
    missing = set()
    for pod in region.items("pod", namespace):
        for kind, name, keys in references(pod["spec"]):
            there = have.get(f"{kind}/{name}")
            if there is None or not keys <= there:
                missing.add(f"{pod['metadata']['name']}: {kind} {name} {sorted(keys)}")
    return sorted(missing)


def references(spec: dict) -> list[tuple[str, str, set[str]]]:
    """Returns (kind, name, keys) of what volumes and environments need, without optional ones."""
    found = []
    for volume in spec.get("volumes", []):
        for source in [volume, *volume.get("projected", {}).get("sources", [])]:
            for kind, entry, name in (("secret", "secret", "secretName"), ("configmap", "configMap", "name")):
                if entry in source and not source[entry].get("optional"):
                    one = source[entry]
                    keys = {item["key"] for item in one.get("items", [])}
                    found.append((kind, one.get(name) or one["name"], keys))
    for container in [*spec["containers"], *spec.get("initContainers", [])]:
        for kind, entry in (("secret", "secretRef"), ("configmap", "configMapRef")):
            froms = [one[entry] for one in container.get("envFrom", []) if entry in one]
            found += [(kind, one["name"], set()) for one in froms if not one.get("optional")]
        for kind, entry in (("secret", "secretKeyRef"), ("configmap", "configMapKeyRef")):
            refs = [one.get("valueFrom", {}).get(entry) for one in container.get("env", [])]
            found += [(kind, one["name"], {one["key"]}) for one in refs if one and not one.get("optional")]
    return found
