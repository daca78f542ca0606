"""Checks a built site: `python docs/check_site.py site [--external]`.

Every link inside leads to a file and, where it names one, to a place in it; no page loads
anything from elsewhere. With `--external` links to other sites are asked for too; without a
network they are counted as not checked.
"""

import argparse
import sys
import urllib.error
import urllib.request
from collections import defaultdict
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADS = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
NOT_LOADED = {"canonical", "next", "prev", "search", "index", "author", "copyright"}


class Page(HTMLParser):
    """Links, loaded files and places of one page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.places: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what the element leads to, loads, or is called."""
        given = {name: value or "" for name, value in attrs}
        self.places |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        attribute = LOADS.get(tag)
        if attribute in given and not set(given.get("rel", "").split()) & NOT_LOADED:
            self.loaded.append(given[attribute])


def local_faults(pages: dict[Path, Page]) -> list[str]:
    """Sentences about links that lead nowhere and files from elsewhere."""
    faults = []
    for path, page in pages.items():
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
                faults.append(f"{path}: {address} leads to no file")
                continue
            places = pages[target].places if target in pages else None
            if parts.fragment and places is not None and unquote(parts.fragment) not in places:
                faults.append(f"{path}: {address} leads to no place in that page")
    return faults


def external_faults(pages: dict[Path, Page]) -> list[str]:
    """Sentences about links to other sites that do not answer."""
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
                faults.append(f"{paths[0]}: {address} answers {error.code}")
        except OSError:
            unreachable += 1
    print(f"{len(users)} links to other sites, {unreachable} of them not checked (no answer)")
    return faults


def main() -> None:
    """Print every fault; the exit status says whether there is one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path)
    parser.add_argument("--external", action="store_true", help="ask other sites too")
    given = parser.parse_args()
    pages = {path.resolve(): Page(path) for path in sorted(given.site.rglob("*.html"))}
    if not pages:
        sys.exit(f"{given.site} holds no page; `make docs` builds it.")
    faults = local_faults(pages)
    if given.external:
        faults += external_faults(pages)
    print("\n".join(faults) or f"{len(pages)} pages, every link inside leads somewhere")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
