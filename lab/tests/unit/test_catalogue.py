"""Experiments and the papers' figures are checked, and sweeps change what they say."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from spillway_lab.experiments import lab
from spillway_lab.findings import catalogue, inputs, papers
from spillway_lab.scenario import scenario
from spillway_lab.scenario.errors import InvalidInput

LAB = Path(__file__).resolve().parents[2]
SCENARIO = LAB / "scenarios/two-clusters.yaml"
PLAIN = {"title": "t", "question": "q", "kind": "live", "minutes": 1}


def experiment(tmp_path: Path, **keys: object) -> catalogue.Experiment:
    path = tmp_path / "some.yaml"
    path.write_text(yaml.safe_dump(PLAIN | keys))
    return catalogue.load(path)


def test_every_experiment_of_the_lab_can_be_run() -> None:
    """Each file is read, its scenarios are valid at each point, and its policies run there."""
    known = catalogue.load_all(LAB / "experiments")
    assert len(known) >= 15
    for each in known.values():
        if not catalogue.runs(each):
            assert each.shortfall, f"{each.title}: says why it is not run"
        for variant in catalogue.variants(each):
            made = inputs.of_variant(variant)
            document = scenario.Document.model_validate(yaml.safe_load(made.scenario))
            assert {each.policy, *each.baselines} <= set(document.policies)
            if variant.kind == "live" and not variant.changes:
                lab.refuse(scenario.load(variant.scenario))


def test_every_figure_of_the_papers_has_its_experiment() -> None:
    """The anchors of the papers are all there, each beside an experiment that exists."""
    known = catalogue.load_all(LAB / "experiments")
    figures = papers.load(LAB / "papers.yaml", known)
    assert {18.3, 11.6, 3.4, 2.64, 1.7, 3, 6.3, 7.9, 22} <= {figure.value for figure in figures}
    with pytest.raises(InvalidInput, match="experiment: unknown 'threshold'; allowed: how-much"):
        papers.load(LAB / "papers.yaml", ["how-much"])


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"kind": "benchmark"}, "command: missing"),
        (
            {"kind": "benchmark", "command": ["x"], "scenarios": ["a.yaml"]},
            "scenarios, simulated, sweep: not allowed",
        ),
        ({"command": ["x"]}, "command: ['x']; allowed only beside kind: benchmark"),
        ({"scenarios": ["a/b.yaml", "c/b.yaml"]}, "scenarios: 'b' is there twice"),
        ({"simulated": ["a/b.yaml", "c/b.yaml"]}, "simulated: 'b' is there twice"),
        ({"kind": "simulated", "simulated": ["b.yaml"]}, "simulated: allowed only beside kind: live"),
        ({"sweep": [{"label": "x", "points": [{"at": 1, "set": {"a": 1}}] * 2}]}, "baselines: missing"),
        ({"minutes": 0}, "minutes: Input should be greater than 0; got 0"),
        ({"speed": 1}, "speed: unknown key; got 1"),
    ],
)
def test_a_wrong_experiment_is_named(tmp_path, keys: dict, message: str) -> None:
    """The error names the file and the key, what was wrong and what is allowed."""
    with pytest.raises(InvalidInput) as error:
        experiment(tmp_path, **keys)
    assert str(error.value).startswith(f"{tmp_path / 'some.yaml'}: ")
    assert message in str(error.value)


def test_one_wrong_file_does_not_hide_another(tmp_path) -> None:
    """All problems of a folder are in one error."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text("kind: guessed")
    with pytest.raises(InvalidInput) as error:
        catalogue.load_all(tmp_path)
    assert {problem.split(":")[0] for problem in error.value.problems} == {
        str(tmp_path / "a.yaml"),
        str(tmp_path / "b.yaml"),
    }


def test_a_live_experiment_may_be_simulated_too(tmp_path) -> None:
    """The same file is two runs, with names, kinds and digests of their own."""
    some = experiment(tmp_path, scenarios=[str(SCENARIO)], simulated=[str(SCENARIO)])
    live, simulated = catalogue.variants(some)
    assert (live.name, live.kind) == ("two-clusters", "live")
    assert (simulated.name, simulated.kind) == ("two-clusters-simulated", "simulated")
    assert inputs.of_variant(live).digest != inputs.of_variant(simulated).digest
    made = [inputs.written(inputs.of_variant(each), each, tmp_path / "made") for each in (live, simulated)]
    assert made[0] == SCENARIO
    assert scenario.load(made[1]).name == "two-clusters-simulated"
    assert scenario.load(made[1]).document == scenario.load(SCENARIO).document.model_copy(
        update={"application": (SCENARIO.parent / "../applications/chain.yaml").resolve()}
    )


def swept(tmp_path: Path, *changes: dict) -> catalogue.Experiment:
    points = [{"at": number, "set": each} for number, each in enumerate(changes)]
    return experiment(
        tmp_path,
        kind="simulated",
        scenarios=[str(SCENARIO)],
        baselines=["waterfall"],
        sweep=[{"label": "x", "points": points}],
    )


def test_a_sweep_runs_changed_copies(tmp_path) -> None:
    """Each point is a scenario that loads by itself, with the keys of both files that it sets."""
    some = swept(
        tmp_path,
        {"links.0.rtt_ms": 5},
        {"links.0.rtt_ms": 7, "application.services.backend.workers": 9},
    )
    first, second = catalogue.variants(some)
    assert (first.name, second.name) == ("two-clusters-0", "two-clusters-1")
    loaded = [
        scenario.load(inputs.written(inputs.of_variant(each), each, tmp_path / "made"))
        for each in (first, second)
    ]
    assert [each.document.links[0].rtt_ms for each in loaded] == [5, 7]
    assert [each.application.services["backend"].workers for each in loaded] == [4, 9]
    assert [each.name for each in loaded] == [first.name, second.name]


def test_a_key_that_is_not_there_changes_nothing_and_is_an_error(tmp_path) -> None:
    """A sweep over a misspelt key would compare a scenario with itself."""
    for key, message in (
        ("links.0.rtt", "no such key 'rtt'; allowed: source_cluster, destination_cluster"),
        ("links.9.rtt_ms", "no such key '9'; allowed: 0"),
        ("load.measure.rps.west.x", "no such key 'x'; allowed: none"),
        ("application.services.nobody", "no such key 'nobody'; allowed: gateway, frontend, backend"),
    ):
        some = swept(tmp_path, {key: 1}, {key: 2})
        with pytest.raises(InvalidInput) as error:
            inputs.of_variant(catalogue.variants(some)[0])
        assert message in str(error.value)


def test_results_are_of_their_inputs_and_of_no_others(tmp_path) -> None:
    """The digest changes with scenario, application, kind and point, not with the checkout."""
    (tmp_path / "app.yaml").write_text((LAB / "applications/chain.yaml").read_text())
    text = SCENARIO.read_text().replace("../applications/chain.yaml", "app.yaml")
    (tmp_path / "s.yaml").write_text(text)

    def digest(**keys: object) -> str:
        some = experiment(tmp_path, scenarios=["s.yaml"], **keys)
        return inputs.of_variant(catalogue.variants(some)[0]).digest

    first = digest()
    assert digest(title="another", minutes=3) == first
    assert digest(kind="simulated") != first
    (tmp_path / "s.yaml").write_text("# a comment\n" + text)
    assert digest() == first
    (tmp_path / "s.yaml").write_text(text.replace("rtt_ms: 25", "rtt_ms: 26"))
    assert digest() != first
    (tmp_path / "s.yaml").write_text(text)
    (tmp_path / "app.yaml").write_text(
        (tmp_path / "app.yaml").read_text().replace("mean_ms: 40", "mean_ms: 41")
    )
    assert digest() != first


TREES = st.recursive(
    st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@given(TREES, st.lists(st.sampled_from(["a", "b", "c", "0", "1", "2"]), min_size=1, max_size=4))
def test_a_change_sets_one_key_and_leaves_the_document(document: object, key: list[str]) -> None:
    """The value is at the key afterwards, and setting it twice is setting it once."""
    before = repr(document)
    try:
        made = catalogue.changed(document, {".".join(key): "new"}, Path("s.yaml"))
    except InvalidInput as error:
        assert "s.yaml: sweep: " in str(error)
        return
    found = made
    for part in key:
        found = found[int(part)] if isinstance(found, list) else found[part]
    assert found == "new"
    assert catalogue.changed(made, {".".join(key): "new"}, Path("s.yaml")) == made
    assert repr(document) == before
