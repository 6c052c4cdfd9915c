"""A page of HTML: whatever is put in is escaped, unless it is HTML already; nothing is fetched from elsewhere."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from qboltz.report.style import CSS

#: The browser itself refuses whatever would leave the page.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"

_NUMBER = re.compile(r"[+\-−]?\d")


class Html(str):
    """Text that is HTML already."""


@dataclass(frozen=True)
class Picture:
    """A PNG and the words that stand for it.

    Attributes:
        png: the file.
        width, height: on the page, in CSS pixels; the file may have more.
        alt: what it shows, for those who do not see it.
    """

    png: bytes
    width: int
    height: int
    alt: str


@dataclass(frozen=True)
class Section:
    """A part of the page with a title that the table of contents leads to."""

    title: str
    content: Sequence[Html]

    @property
    def anchor(self) -> str:
        """The title as an identifier."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


def html(value: object) -> Html:
    """``value`` as HTML: escaped, unless it is ``Html``."""
    return value if isinstance(value, Html) else Html(escape(str(value)))


def element(name: str, *content: object, **attributes: object) -> Html:
    """``<name attributes>content</name>``; an underscore after an attribute's name is dropped (``class_``)."""
    given = "".join(f' {key.rstrip("_")}="{escape(str(value))}"' for key, value in attributes.items())
    return Html(f"<{name}{given}>{''.join(map(html, content))}</{name}>")


def paragraph(*content: object, class_: str | None = None) -> Html:
    """A paragraph."""
    return element("p", *content) if class_ is None else element("p", *content, class_=class_)


def note(*content: object) -> Html:
    """Something that the reader must not miss: what is unfinished, or could not be shown."""
    return paragraph(*content, class_="note")


def table(head: Sequence[object], rows: Iterable[Sequence[object]], caption: object = None) -> Html:
    """A table; cells that start with a number are set to the right, and so is the head of a column of them."""
    cells = [list(row) for row in rows]
    names = [
        element("th", name, scope="col", class_="number" if any(_is_number(row[column]) for row in cells) else "words")
        for column, name in enumerate(head)
    ]
    lines = [element("tr", *names)]
    body = [element("tr", *map(_cell, row)) for row in cells]
    titled = [] if caption is None else [element("caption", caption)]
    whole = element("table", *titled, element("thead", *lines), element("tbody", *body))
    return element("div", whole, class_="wide")


def facts(pairs: Iterable[tuple[object, object]]) -> Html:
    """Names and values, a line each."""
    rows = [element("tr", element("th", name, scope="row"), element("td", value)) for name, value in pairs]
    return element("div", element("table", element("tbody", *rows), class_="facts"), class_="wide")


def figure(picture: Picture, caption: object) -> Html:
    """A picture, inside the page, and what there is to see."""
    data = base64.b64encode(picture.png).decode()
    image = Html(
        f'<img src="data:image/png;base64,{data}" width="{picture.width}" height="{picture.height}" '
        f'alt="{escape(picture.alt)}">'
    )
    return element("figure", image, element("figcaption", caption))


def page(title: str, head: Sequence[Html], sections: Sequence[Section]) -> str:
    """The whole file."""
    links = [element("li", element("a", section.title, href=f"#{section.anchor}")) for section in sections]
    parts = [
        element("section", element("h2", section.title), *section.content, id=section.anchor) for section in sections
    ]
    main = element("main", element("h1", title), *head, element("nav", element("ul", *links)), *parts)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{CSS}</style>\n</head>\n<body>\n{main}\n</body>\n</html>\n"
    )


def _cell(value: object) -> Html:
    return element("td", value, class_="number") if _is_number(value) else element("td", value)


def _is_number(value: object) -> bool:
    return _NUMBER.match(re.sub(r"<[^>]*>", "", str(value))) is not None
