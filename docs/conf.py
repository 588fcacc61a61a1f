"""Sphinx's settings of the site. scripts/build-site calls it with the pages in build/site-source, one page a command."""

import re

project = "gdbext"
copyright = "the authors of gdbext, MIT licence"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "gdbext"
html_static_path = html_css_files = ["site.css"]
html_theme_options = {"navigation_with_keys": True}
myst_heading_anchors = 4
highlight_language = "none"
nitpicky = True

# The parts of the site, in the order of the sidebar. index.md says what each page is for, and names none twice.
NAVIGATION = {
    "Start": ["install", "first-session", "exercises", "faq"],
    "For you": ["py-spy", "gdb", "sre", "engine-developers", "agents"],
    "Use": ["Guides <guides>", "manual", "commands", "verdicts", "pods", "instances", "library", "JSON <json>"],
    "Trust": ["Figures <figures>", "Security <security>", "Reporting a fault <reporting>", "policy", "measurements"],
    "Work on it": ["CONTRIBUTING", "architecture", "sources", "Rules <ablation>", "upstream", "CHANGELOG"],
}


def _with_navigation(app, page, source):
    """The sidebar is a hidden list at the end of a page, which GitHub would show: it is added here."""
    if page == app.config.root_doc:
        for title, pages in NAVIGATION.items():
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n" + "\n".join(pages) + "\n```\n"
    if page == "commands":
        names = re.findall(r"\(commands/([\w-]+)\.md\)", source[0])
        source[0] += "\n```{toctree}\n:hidden:\n\n" + "\n".join(f"commands/{name}" for name in sorted(names)) + "\n```\n"


def setup(app):
    app.connect("source-read", _with_navigation)
    return {"parallel_read_safe": True}
