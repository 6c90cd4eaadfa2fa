"""The report needs no other file, says the same as HTML and as Markdown, and hides nothing."""

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from made_runs import made
from spillway_lab.commands import report as command
from spillway_lab.findings import catalogue, inputs, kept, reading
from spillway_lab.findings.chapter import Chapter
from spillway_lab.pages import html_page, markdown_page, pages
from spillway_lab.pages.blocks import Command, Heading, Picture, Table, Text
from spillway_lab.report import results

LAB = Path(__file__).resolve().parents[2]
VOID = {"meta", "br", "hr", "img", "link", "input"}


class Page(HTMLParser):
    """Checks that elements are closed in their order, and collects references, ids and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.references: list[str] = []
        self.ids: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []
        self.references += re.findall(r"url\(([^)]*)\)", text)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name.split(":")[-1] in ("src", "href", "data", "srcset", "action", "poster"):
                self.references.append(value)
            if name == "id":
                self.ids.append(value)

    def handle_startendtag(self, tag: str, attrs: list) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("style", "script"):
            self.words.append(data)


def stored(folder: Path, experiment: str, **options: object) -> None:
    """Writes results of each run of an experiment, as the driver would."""
    known = catalogue.load(LAB / f"experiments/{experiment}.yaml")
    for number, variant in enumerate(catalogue.variants(known)):
        means = {"spillway": 50.0, "waterfall": 60.0 + 5 * number, "local": 200.0}
        run, samples = made(means, name=variant.name, kind=variant.kind, **options)
        results.write(folder / experiment / variant.name, run, samples)
        stamp = inputs.Stamp(digest=inputs.of_variant(variant).digest)
        (folder / experiment / variant.name / inputs.FILE).write_text(stamp.model_dump_json())


def made_chapters(found: Path, earlier: Path) -> list[Chapter]:
    return reading.chapters(LAB / "experiments", LAB / "papers.yaml", found, earlier)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a report: live results, a sweep, a benchmark, and the rest not run."""
    folder = tmp_path_factory.mktemp("report")
    stored(folder / "results", "how-much", facts={"predicted ratio": 0.71, "more": {"a": 1}})
    stored(folder / "results", "threshold")
    (folder / "results/solver-time").mkdir()
    (folder / "results/solver-time/facts.json").write_text('{"published_convex_s": 0.11}')
    chapters = made_chapters(folder / "results", folder / "out/figures")
    pages.write(chapters, folder / "out")
    return folder


def test_the_html_page_needs_no_other_file(report: Path) -> None:
    """Every src, href and url() is a fragment of the page, and its target exists once."""
    page = Page((report / "out/report.html").read_text())
    assert len(page.references) > 20
    fragments = {reference.strip("\"'") for reference in page.references}
    assert {reference for reference in fragments if not reference.startswith("#")} == set()
    assert {reference[1:] for reference in fragments} <= set(page.ids)
    assert len(set(page.ids)) == len(page.ids)
    assert "<script" not in (report / "out/report.html").read_text()


def test_both_pages_say_the_same(report: Path) -> None:
    """Each word of the HTML page outside of its pictures is in the Markdown page too."""
    text = re.sub(r"<svg.*?</svg>", "", (report / "out/report.html").read_text(), flags=re.S)
    text = text.partition("<body>")[2]

    def words(text: str) -> set[str]:
        return set(re.findall(r"\w+", text))

    shown = words(" ".join(Page(f"<body>{text}".replace("</html>", "")).words))
    assert len(shown) > 300
    assert shown - words((report / "out/README.md").read_text()) == set()


def test_the_pictures_of_the_markdown_page_are_there(report: Path) -> None:
    """Each picture is a file beside the page, none is left over, and none refers elsewhere."""
    named = set(re.findall(r"!\[[^\]]*\]\(pictures/([^)]+)\)", (report / "out/README.md").read_text()))
    there = {path.name: path.read_text() for path in (report / "out/pictures").iterdir()}
    assert named == set(there)
    assert {"how-much-two-clusters-cdf.svg", "how-much-two-clusters-time.svg", "threshold-sweep.svg"} <= named
    for svg in there.values():
        assert re.findall(r'(?:href|src)="(?!#)[^"]*"|url\((?!#)', svg) == []


def test_the_same_results_make_the_same_pages(report: Path) -> None:
    """Pages are committed, so they have no time of their own and no random ids."""
    chapters = made_chapters(report / "results", report / "out/figures")
    pages.write(chapters, report / "again")
    for path in (report / "out").rglob("*.*"):
        assert path.read_bytes() == (report / "again" / path.relative_to(report / "out")).read_bytes()


def test_a_chapter_has_what_a_reader_needs(report: Path) -> None:
    """Question, set-up, figures with intervals, verdict, machine, and the command that runs it."""
    text = (report / "out/README.md").read_text()
    demo = text[text.index("## How much to route away") :]
    demo = demo[: demo.index("\n## ", 3)]
    for part in (
        "A cluster has more load than its backend can serve",
        "| west |  | 25 |",
        "west 110, east 10 requests/s",
        "`spillway` is better than `waterfall` in mean latency: waterfall has",
        "| waterfall | better: 1.",
        "utilisation 60%, pressure 10%, undisturbed",
        "stretched 2 times",
        "make experiments ONLY=how-much AGAIN=1",
        "make lab SCENARIO=two-clusters",
        "| `predicted ratio` | 0.71 |",
        "| `more.a` | 1 |",
        "Is \\<this\\> | escaped?",
    ):
        assert part in " ".join(demo.split()) or part in demo, part


def test_what_did_not_run_is_listed_as_such(report: Path) -> None:
    """An anchor without results stands in the summary and beside the paper's figure: not run."""
    text = (report / "out/README.md").read_text()
    row = next(line for line in text.splitlines() if "Which requests to route away" in line)
    assert row.count("not run") == 2
    assert re.search(r"253 to 74 ms.*3\.4 × \| not run \|", text)


def test_an_experiment_without_scenarios_says_why(tmp_path: Path) -> None:
    """It is listed as not run, with its reason, and with no command that would run it."""
    plain = {"title": "Some", "question": "What now?", "kind": "live", "minutes": 1}
    (tmp_path / "some.yaml").write_text(json.dumps(plain | {"shortfall": "There is none yet."}))
    some = catalogue.load(tmp_path / "some.yaml")
    pages.write([reading.chapter("some", some, [], tmp_path, tmp_path)], tmp_path / "out")
    text = (tmp_path / "out/README.md").read_text()
    assert "Not run. There is none yet." in text
    assert "ONLY=some" not in text


def test_a_benchmark_stands_beside_the_paper(report: Path) -> None:
    """The solver's seconds are compared with the paper's, which are read off a plot."""
    text = (report / "out/README.md").read_text()
    assert re.search(r"22 s, read off the plot \| 0\.110 s \| `published_convex_s` \| reached", text)


def test_results_of_other_inputs_and_unreadable_ones_are_named(tmp_path: Path) -> None:
    """A changed scenario makes results stale. A damaged file is a problem of its chapter alone."""
    stored(tmp_path, "how-much")
    stored(tmp_path, "threshold")
    stamp = inputs.Stamp(digest="another")
    (tmp_path / "how-much/two-clusters" / inputs.FILE).write_text(stamp.model_dump_json())
    (tmp_path / "threshold/two-clusters-5-60/spillway-0.npz").write_bytes(b"no archive")
    found = {each.id: each for each in made_chapters(tmp_path, tmp_path / "none")}
    assert found["how-much"].state == "live, stale; simulated"
    assert found["threshold"].state == "simulated, 24 of 25"
    (problem,) = found["threshold"].problems
    assert problem.startswith("two-clusters-5-60/spillway-0.npz: is no .npz file")
    pages.write(list(found.values()), tmp_path / "out")
    text = (tmp_path / "out/README.md").read_text()
    assert "inputs have changed since these runs: two-clusters" in text
    assert "Not read: two-clusters-5-60/spillway-0.npz" in text


def test_disturbed_results_are_marked_everywhere(tmp_path: Path) -> None:
    """The summary, the verdicts and the machine's line say that a run was disturbed."""
    stored(tmp_path, "how-much", disturbed=2)
    chapters = made_chapters(tmp_path, tmp_path / "none")
    pages.write(chapters, tmp_path / "out")
    text = " ".join((tmp_path / "out/README.md").read_text().split())
    assert "live, disturbed" in text
    assert "No conclusion about mean latency: the machine was too busy in 2 of 9 rounds" in text
    assert "2 of 9 rounds were disturbed" in text
    assert "` is better" not in text


def test_figures_with_failed_requests_in_them_are_lower_bounds(tmp_path: Path) -> None:
    """With 5 % failed, the mean and p99 are marked, and the median and p90 are not."""
    stored(tmp_path, "how-much", failed_share=0.05)
    chapters = made_chapters(tmp_path, tmp_path / "none")
    pages.write(chapters, tmp_path / "out")
    lines = (tmp_path / "out/README.md").read_text().splitlines()
    row = next(line for line in lines if line.startswith("| spillway |")).split(" | ")
    assert [cell.startswith("≥ ") for cell in row[1:6]] == [True, False, False, True, False]
    assert row[5].startswith("5.00 (")


def test_the_command_counts_what_it_wrote(tmp_path: Path) -> None:
    """The last line is JSON. A folder without any result gives a report of what is not run."""
    done = CliRunner().invoke(
        command.command, ["--results", str(tmp_path / "none"), "--out", str(tmp_path / "out")]
    )
    assert done.exit_code == 0, done.output
    last = json.loads(done.output.splitlines()[-1])
    assert last["experiments"] == last["not_run"] >= 15
    assert (last["pictures"], last["unreadable"]) == (0, 0)
    assert (tmp_path / "out/report.html").exists()


def test_figures_that_are_kept_make_the_same_report(tmp_path: Path) -> None:
    """Without any results, the pages are as they were, with all kinds of chapters in them."""
    stored(tmp_path / "results", "how-much", facts={"predicted ratio": 0.71}, disturbed=1)
    stored(tmp_path / "results", "threshold")
    stored(tmp_path / "results", "overload", failed_share=0.05)
    (tmp_path / "results/solver-time").mkdir()
    (tmp_path / "results/solver-time/facts.json").write_text('{"published_convex_s": 0.11}')
    texts = []
    for found in ("results", "none"):
        done = CliRunner().invoke(
            command.command, ["--results", str(tmp_path / found), "--out", str(tmp_path / "out")]
        )
        assert done.exit_code == 0, done.output
        pictures = sorted((tmp_path / "out/pictures").glob("*.svg"))
        assert len(pictures) > 5
        texts.append([(tmp_path / "out/README.md").read_text(), *(path.name for path in pictures)])
    assert texts[0] == texts[1]


def test_results_replace_the_figures_of_their_run_alone(tmp_path: Path) -> None:
    """A run that is there again is shown anew; another one of the same experiment stays."""
    stored(tmp_path / "first", "how-much")
    stored(tmp_path / "second", "how-much", disturbed=1)
    shutil.rmtree(tmp_path / "second/how-much/two-clusters-simulated")
    for found in ("first", "second"):
        kept.write(tmp_path / "figures", made_chapters(tmp_path / found, tmp_path / "figures"))
    (chapter,) = (
        each for each in made_chapters(tmp_path / "none", tmp_path / "figures") if each.id == "how-much"
    )
    assert chapter.state == "live, disturbed; simulated"


def test_kept_figures_of_other_inputs_and_damaged_ones_are_named(tmp_path: Path) -> None:
    """A changed scenario makes them stale. A damaged file is a problem of its chapter alone."""
    figures = tmp_path / "figures"
    stored(tmp_path / "results", "how-much")
    stored(tmp_path / "results", "overload")
    kept.write(figures, made_chapters(tmp_path / "results", figures))
    path = figures / "how-much.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"digests": document["digests"] | {"two-clusters": "another"}}))
    (figures / "overload.json").write_text('{"runs": 7}')
    found = {each.id: each for each in made_chapters(tmp_path / "none", figures)}
    assert found["how-much"].state == "live, stale; simulated"
    assert found["overload"].state == "not run"
    (problem,) = found["overload"].problems
    assert "overload.json: runs" in problem


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=20)


@given(TEXTS, TEXTS, TEXTS)
def test_any_text_is_shown_as_it_is(first: str, second: str, third: str) -> None:
    """No name of a policy or a scenario becomes markup, and each Markdown row has its cells."""
    content = [
        Heading(2, f"h {first}", "h"),
        Text(f"{second}"),
        Table(("a", "b"), ((f"c{first}", f"d{third}"),), links=("h",)),
        Picture("p", '<svg id="a"><use href="#a"/></svg>', third),
        Command(f"run {second}"),
    ]
    page = Page(html_page.page("title", content))
    shown = "".join(page.words)
    for text in (first, second, third):
        assert text in shown or "`" in text
    assert page.references == ["#h", "#p3-a"]
    rows = [line for line in markdown_page.page(content, "x").splitlines() if line.startswith("| [c")]
    assert [len(re.findall(r"(?<!\\)\|", row)) for row in rows] == [3]
