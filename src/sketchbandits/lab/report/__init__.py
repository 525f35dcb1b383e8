"""``report.html``: one self-contained page with the verdicts, figures and tables of `reproduce` or `simulate`.

    wording, page → data_tables, captions, verdicts, making → pages

`pages` collects what is shown, `templates` holds the HTML.
"""

from sketchbandits.lab.report.pages import own_report, paper_report

__all__ = ["own_report", "paper_report"]
