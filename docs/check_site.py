"""Checks a built site: `python docs/check_site.py site [--external]`.

Every internal link must lead to a file and, if it has a fragment, to an anchor in it; no page may load
anything from another site or show a placeholder that was not filled. With `--external`, links to other sites are requested too; without a
network they are counted as not checked.
"""

import argparse
import re
import sys
import urllib.error
import urllib.request
from collections import defaultdict
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADS = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
NOT_LOADED = {"canonical", "next", "prev", "search", "index", "author", "copyright"}
PLACEHOLDER = re.compile(r"\{\{ [\w.]+ \}\}|\{% .+? %\}")
"""As pages and templates write them; double braces of code and BibTeX hold no spaces."""


class Page(HTMLParser):
    """Links, loaded files, anchors and text of one page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.places: set[str] = set()
        self.text = ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record the links, loaded files and names of the element."""
        given = {name: value or "" for name, value in attrs}
        self.places |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        attribute = LOADS.get(tag)
        if attribute in given and not set(given.get("rel", "").split()) & NOT_LOADED:
            self.loaded.append(given[attribute])

    def handle_data(self, data: str) -> None:
        """Record the text."""
        self.text += data


def local_faults(pages: dict[Path, Page]) -> list[str]:
    """Sentences about broken links, files from other sites and placeholders that were not filled."""
    faults = []
    for path, page in pages.items():
        faults += [f"{path}: shows {braces}" for braces in PLACEHOLDER.findall(page.text)]
        faults += [
            f"{path}: loads {address}"
            for address in page.loaded
            if (parts := urlsplit(address)).scheme not in ("", "data") or parts.netloc
        ]
        for address in (*page.links, *page.loaded):
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                faults.append(f"{path}: there is no file {address}")
                continue
            places = pages[target].places if target in pages else None
            if parts.fragment and places is not None and unquote(parts.fragment) not in places:
                faults.append(f"{path}: {address} names no anchor of that page")
    return faults


def external_faults(pages: dict[Path, Page]) -> list[str]:
    """Sentences about links to other sites that return errors."""
    users = defaultdict(list)
    for path, page in pages.items():
        for address in page.links:
            if urlsplit(address).scheme in ("http", "https"):
                users[address.partition("#")[0]].append(path)
    faults, unreachable = [], 0
    for address, paths in sorted(users.items()):
        asked = urllib.request.Request(address, headers={"User-Agent": "icl_mech link check"})
        try:
            urllib.request.urlopen(asked, timeout=10).close()
        except urllib.error.HTTPError as error:
            if error.code in (404, 410):
                faults.append(f"{paths[0]}: {address} returns {error.code}")
        except OSError:
            unreachable += 1
    print(f"{len(users)} links to other sites, {unreachable} of them not checked (no answer)")
    return faults


def main() -> None:
    """Print every fault; the exit status says whether there is one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path)
    parser.add_argument("--external", action="store_true", help="check links to other sites too")
    given = parser.parse_args()
    pages = {path.resolve(): Page(path) for path in sorted(given.site.rglob("*.html"))}
    if not pages:
        sys.exit(f"{given.site} contains no page; build the site with `make docs`.")
    faults = local_faults(pages)
    if given.external:
        faults += external_faults(pages)
    print(
        "\n".join(faults)
        or f"{len(pages)} pages, all internal links work, all placeholders are filled"
    )
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
