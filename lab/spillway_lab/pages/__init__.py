"""The report: chapters of what was found, as one HTML page and as Markdown with pictures."""
