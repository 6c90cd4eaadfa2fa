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
        for workload in region.items(kind, namespace):
            name = f"{kind}/{workload['metadata']['name']}"
            wanted, status = workload["spec"]["replicas"], workload["status"]
            current = status.get("observedGeneration", 0) >= workload["metadata"]["generation"]
            ready = status.get("readyReplicas", 0) == status.get("updatedReplicas", 0) == wanted
            found[name] = current and ready and wanted >= least.get(name, 1)
    for workload in region.items("daemonset", namespace):
        status = workload["status"]
        ready = status.get("numberReady", 0) == status.get("desiredNumberScheduled", 0) > 0
        found[f"daemonset/{workload['metadata']['name']}"] = (
            ready and status.get("observedGeneration", 0) >= workload["metadata"]["generation"]
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
        f"{kind}/{item['metadata']['name']}": set(item.get("data", {})) | set(item.get("binaryData", {}))
        for kind in ("secret", "configmap")
        for item in region.items(kind, namespace)
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
                    reference = source[entry]
                    keys = {item["key"] for item in reference.get("items", [])}
                    found.append((kind, reference.get(name) or reference["name"], keys))
    for container in [*spec["containers"], *spec.get("initContainers", [])]:
        for kind, entry in (("secret", "secretRef"), ("configmap", "configMapRef")):
            froms = [reference[entry] for reference in container.get("envFrom", []) if entry in reference]
            found += [
                (kind, reference["name"], set()) for reference in froms if not reference.get("optional")
            ]
        for kind, entry in (("secret", "secretKeyRef"), ("configmap", "configMapKeyRef")):
            refs = [reference.get("valueFrom", {}).get(entry) for reference in container.get("env", [])]
            found += [
                (kind, reference["name"], {reference["key"]})
                for reference in refs
                if reference and not reference.get("optional")
            ]
    return found
