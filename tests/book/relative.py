"""A preprocessor of mdBook, for links that are right in a checkout and not in the book.

A link that leaves docs becomes one to the repository, and a README.md the index.html that mdBook makes of it.
"""

import json
import posixpath
import re
import sys

REPOSITORY = "https://github.com/distlock/distlock/blob/main/"
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")


def visit(items):
    for item in items:
        # Others are separators and titles of parts; a draft has no file.
        chapter = item.get("Chapter") if isinstance(item, dict) else None
        if not chapter or not chapter["source_path"]:
            continue
        folder = posixpath.dirname(posixpath.join("docs", chapter["source_path"]))

        def led(link):
            path = posixpath.normpath(posixpath.join(folder, link[1]))
            if not path.startswith("docs/"):
                return REPOSITORY + path
            return re.sub(r"(^|/)README\.md$", r"\1index.md", link[1])

        chapter["content"] = LINK.sub(led, chapter["content"])
        visit(chapter["sub_items"])


if sys.argv[1:2] == ["supports"]:
    sys.exit(0)
_context, book = json.load(sys.stdin)
visit(book["items"])
json.dump(book, sys.stdout)
