"""Pictures of terminals (scripts/renew-screens): the SVG has each word at its column, in its colour."""

import xml.etree.ElementTree as ElementTree

from tools.screens import CHAR, COLOURS, PAD, WIDTH, drawn

SVG = "{http://www.w3.org/2000/svg}"


def pieces(picture):
    """[[(column, text, colour) of a line] of each line]"""
    return [
        [(round((float(span.get("x")) - PAD) / CHAR), span.text, span.get("fill")) for span in line.iter(SVG + "tspan")]
        for line in ElementTree.fromstring(picture).iter(SVG + "text")
    ]


def test_words_stand_at_their_columns_in_their_colours():
    said = "\x1b[31mbad\x1b[m:  <a> & b\n   \x1b[33mindented\x1b[m\n\n\x1b]8;;file://h/x.py\x1b\\x.py:7\x1b]8;;\x1b\\ end"
    assert pieces(drawn("a <title>", said)) == [
        [(0, "bad", COLOURS["31"]), (3, ":", None), (6, "<a> & b", None)],
        [(3, "indented", COLOURS["33"])],
        [],
        [(0, "x.py:7", None), (7, "end", None)],
    ]


def test_a_long_line_makes_the_picture_wider():
    narrow, wide = (int(ElementTree.fromstring(drawn("", "x" * n)).get("width")) for n in (3, WIDTH + 40))
    assert narrow == round(2 * PAD + CHAR * WIDTH) < wide == round(2 * PAD + CHAR * (WIDTH + 40))
