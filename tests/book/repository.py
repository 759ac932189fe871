"""A preprocessor of mdBook: a link that leaves docs becomes one to the repository.

In a checkout these links are relative, so that they lead to files of the same version.
"""

import json
import posixpath
import re
import sys

REPOSITORY = "https://github.com/distlock/distlock/blob/main/"
LINK = re.compile(r"(?<=\]\()\.\./[^)\s]*")


def led_out(text, chapter):
    def absolute(link):
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(chapter), link[0]))
        return link[0] if path.startswith("docs/") else REPOSITORY + path

    return LINK.sub(absolute, text)


def visit(items):
    for item in items:
        if "Chapter" in item:
            chapter = item["Chapter"]
            # A draft has no file.
            if chapter["source_path"]:
                chapter["content"] = led_out(chapter["content"], chapter["source_path"])
            visit(chapter["sub_items"])


if sys.argv[1:2] == ["supports"]:
    sys.exit(0)
_context, book = json.load(sys.stdin)
visit(book["items"])
json.dump(book, sys.stdout)
