"""spillway-global with all jobs of streams in one process (`streams.mode: all`)."""

import charts
import pytest
from global_chart import ALL_JOBS, CHART, LEAST

pytestmark = [pytest.mark.component, pytest.mark.usefixtures("chart_tools")]
JOBS = ("admit", "exclusive", "curves", "graph", "classify")


def _container(objects: list[dict], name: str) -> dict:
    return charts.of(objects, "Deployment")[name]["spec"]["template"]["spec"]["containers"][0]


def test_one_deployment_takes_the_place_of_those_of_the_jobs():
    """Only these five Deployments are gone, and each job's Service has its name and port as before.

    The Service leads to the job's own port of the one pod.
    """
    before, after = charts.render(CHART, LEAST), charts.render(CHART, ALL_JOBS)
    gone = {f"spillway-{job}" for job in JOBS}
    assert set(charts.of(after, "Deployment")) == set(charts.of(before, "Deployment")) - gone | {
        "spillway-streams"
    }
    old, new = charts.of(before, "Service"), charts.of(after, "Service")
    assert set(new) == set(old)
    listens = {port["name"]: port["containerPort"] for port in _container(after, "spillway-streams")["ports"]}
    for job in JOBS:
        [port] = new[f"spillway-{job}"]["spec"]["ports"]
        assert port == old[f"spillway-{job}"]["spec"]["ports"][0] | {"targetPort": job}
        assert listens[job] == port["port"]
        assert new[f"spillway-{job}"]["spec"]["selector"]["app.kubernetes.io/name"] == "spillway-streams"
        assert new[f"spillway-{job}"]["metadata"]["labels"] == old[f"spillway-{job}"]["metadata"]["labels"]
    [ingress] = charts.of(after, "NetworkPolicy")["spillway-streams"]["spec"]["ingress"]
    assert {port["port"] for port in ingress["ports"]} == set(listens)


def test_each_job_keeps_its_credentials_and_settings():
    """Each variable that a job's own pod had is there for this job alone, from the same Secret."""
    settings = {"exclusive": {"settings": {"STREAMS_WINDOW_S": 4}}}
    separate = charts.render(CHART, LEAST | {"streams": settings})
    together = charts.render(CHART, ALL_JOBS | {"streams": settings | {"mode": "all"}})
    whole = {v["name"]: v for v in _container(together, "spillway-streams")["env"]}
    for job in JOBS:
        for variable in _container(separate, f"spillway-{job}")["env"]:
            name = variable["name"]
            own = whole.get(name.replace("SPILLWAY_", f"SPILLWAY_{job.upper()}_", 1)) or whole[name]
            if name == "SPILLWAY_KAFKA_SASL_PASSWORD_FILE":
                assert own["value"] == f"/run/spillway/kafka/{job}/kafka-password"
            else:
                assert own | {"name": name} == variable, (job, name)
    template = charts.of(together, "Deployment")["spillway-streams"]["spec"]["template"]
    [passwords] = [v for v in template["spec"]["volumes"] if v["name"] == "kafka"]
    assert {s["secret"]["name"] for s in passwords["projected"]["sources"]} == {
        f"spillway-{job}" for job in JOBS
    }
