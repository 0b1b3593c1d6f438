"""`otel-ml explain [WHAT]`: what a message means, why it happens, what to do; without a network."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem
from rich.text import Text

from otel_ml_service.cli.catalogue import Section, catalogue
from otel_ml_service.cli.screen import Screen, screen

__all__ = ["command"]

_WIDEST = 80
"""Columns of running text; longer lines are hard to read."""

_LINK = re.compile(r"\[(?P<text>[^]]+)\]\([^)]+\)")


class _SlugType(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.5 only
    """The slug of a section, or words of a message."""

    name = "what"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Complete slugs."""
        sections = catalogue().sections.values()
        return [CompletionItem(found.slug, help=found.line) for found in sections if found.slug.startswith(incomplete)]


@click.command(
    "explain",
    epilog="Examples: otel-ml explain spool-full · otel-ml explain \"Metric 'loss': expected a number, got None.\"",
    context_settings={"ignore_unknown_options": True},  # a message may quote options
)
@click.argument("what", metavar="[WHAT]...", type=_SlugType(), nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a name, for programs.")
def command(what: Sequence[str], as_json: bool) -> None:
    """Explain a message: what it means, why it happens, what to do.

    WHAT is the name at the end of the message, or the message itself, as it was printed. Without WHAT all names are
    listed.
    """
    output = screen()
    # Words, since who copies a message need not quote it.
    said = " ".join(what)
    found = catalogue().find(said) if what else tuple(catalogue().sections.values())
    if not found:
        _print_unknown(output, said, with_list=not as_json)
        raise click.exceptions.Exit(1)
    if as_json:
        _print_json(found)
    elif what:
        for section in found:
            _print(output, section)
    else:
        _list(output)


def _print_unknown(output: Screen, said: str, *, with_list: bool) -> None:
    near = catalogue().near(said)
    # Below a list of 400 lines nobody finds what was meant.
    more = f" Did you mean {' or '.join(map(repr, near))}? `otel-ml explain` lists all names." if near else ""
    list_follows = " All names:\n" if with_list and not near else ""
    output.err.print(Text(f"Nothing is known of {_shortened(said)!r}.{more}{list_follows}", style="yellow"))
    if with_list and not near:
        _list(output)


def _print_json(sections: Sequence[Section]) -> None:
    for one in sections:
        click.echo(json.dumps({"slug": one.slug, "part": one.part, "summary": one.line, "text": one.text}))


def _list(output: Screen) -> None:
    sections = list(catalogue().sections.values())
    width = max(len(section.slug) for section in sections)
    parts = list(dict.fromkeys(section.part for section in sections))  # the page comes back to some of them
    sections.sort(key=lambda section: parts.index(section.part))
    for number, (part, group) in enumerate(itertools.groupby(sections, key=lambda section: section.part)):
        if number:
            output.line()
        output.line(part, style="bold")
        for section in group:
            output.out.print(Text.assemble("  ", (section.slug.ljust(width), "cyan"), "  ", section.line))


def _print(output: Screen, section: Section) -> None:
    output.line(section.slug, style="bold cyan")
    for paragraph in [section.line, *section.text.split("\n\n")]:
        output.line()
        # The console of a screen wraps nothing, so that addresses stay whole; running text is to be wrapped.
        output.out.print(_shown(paragraph), soft_wrap=False, width=min(output.out.width, _WIDEST))
    output.line()


def _shown(paragraph: str) -> Text:
    """Return a paragraph of Markdown for a terminal: its label bold, code in a color, links without their target."""
    text = " ".join(_LINK.sub(r"\g<text>", paragraph).split())
    # `**Means:** …`: each paragraph of the page begins so.
    label = re.match(r"\*\*(?P<text>[^*]+)\*\* ", text)
    shown = Text(f"{label['text']} {text[label.end() :]}" if label else text)
    if label:
        shown.stylize("bold", 0, len(label["text"]))
    shown.highlight_regex(r"`[^`]+`", "cyan")
    return shown


def _shortened(said: str) -> str:
    return said if len(said) <= 60 else f"{said[:59]}…"
