"""The command `report`: makes the pages that show what the runs of the experiments have found."""

import json
from pathlib import Path

import click
from spillway_runtime import command_line

from spillway_lab.findings import kept, reading
from spillway_lab.pages import pages
from spillway_lab.stack.stack import ROOT

FIGURES = "figures"
EXPERIMENTS, PAPERS = ROOT / "lab/experiments", ROOT / "lab/papers.yaml"


@click.command("report", cls=command_line.Command)
@click.option(
    "--results", type=command_line.PATH, required=True, help="Folder that `experiments` wrote into."
)
@click.option("--out", type=command_line.PATH, required=True, help="Folder for the pages.")
def command(results: Path, out: Path) -> None:
    """Writes report.html, and README.md with its pictures, into a folder.

    What has no results takes the figures of an earlier run from `figures/` in that folder, where
    those of all runs are kept. An experiment with neither is listed as not run. The last line is
    one JSON object.
    """
    figures = out / FIGURES
    chapters = reading.chapters(EXPERIMENTS, PAPERS, results, figures)
    kept.write(figures, chapters)
    written = pages.write(chapters, out)
    for chapter in chapters:
        for problem in chapter.problems:
            print(f"{chapter.id}: {problem}")
    states = [chapter.state for chapter in chapters]
    print(
        json.dumps(
            {
                "page": str(written.html),
                "pictures": written.pictures,
                "experiments": len(states),
                "not_run": states.count("not run"),
                "unreadable": sum(len(chapter.problems) for chapter in chapters),
            }
        )
    )
