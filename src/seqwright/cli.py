"""The command line: which commands there are. Each is loaded only when it is asked for, so that help is instant."""

from __future__ import annotations

import importlib
import sys

import click

from seqwright import __version__
from seqwright.core.config import UserError, did_you_mean

COMMANDS = {
    "demo": "Train a ladder of language models on a text every machine has, and compare them.",
    "train": "Train a recipe or your own text; run it again to go on where it stopped.",
    "evaluate": "Score a run on a text, with signatures and intervals.",
    "mix": "Average the probabilities of several runs, with weights tuned on held-out text.",
    "generate": "Continue a prompt.",
    "translate": "Turn each source line of a file into a target line.",
    "classify": "The label of each text, with its probabilities.",
    "tag": "Give every word of a file its tag.",
    "caption": "What is on each picture, in words.",
    "chat": "Talk with an assistant.",
    "fill": "Guess what <mask> hides in a text.",
    "embed": "One vector for each line of a file, from any run with an encoder.",
    "score": "Log-probability and surprisal of each line of a file; keep the lines a model finds likely.",
    "probe": "What a model makes of sentences that differ only in a pronoun, a name or an origin.",
    "search-audit": "How often a beam misses the best output: model error or search error.",
    "export": "Write a model in a format of other programs.",
    "import": "Make a run of a model that another program wrote.",
    "check": "Prove on your own model the laws that every model keeps.",
    "tokenize": "Show how text is cut into tokens, and what is lost.",
    "recipes": "List the recipes that come with seqwright, or the keys a recipe may have.",
    "runs": "List trained runs and what they reached.",
    "data": "List, verify, audit and prepare data.",
}


class Commands(click.Group):
    """Finds a command in the module of its name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"seqwright.commands.{cmd_name.replace('-', '_')}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            ctx.fail(f"no command '{args[0]}'.{did_you_mean(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="seqwright")
def seqwright() -> None:
    """Train, compare, look inside and ship sequence models on your own data, from counting n-grams to GPT."""


def refuse_broken_text(arguments: list[str]) -> None:
    """Raises where an argument holds bytes that are not UTF-8: no prompt, recipe or log could take them."""
    for argument in arguments:
        shown = argument.encode("utf-8", "backslashreplace").decode()
        if shown != argument:
            raise UserError(f"the argument '{shown}' is not UTF-8; write it (or rename the file) in UTF-8.")


def main() -> None:
    """Runs a command; what a user can mend is one clear message and exit code 2."""
    try:
        refuse_broken_text(sys.argv)
        status = seqwright.main(standalone_mode=False)
        sys.exit(status if isinstance(status, int) else 0)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except UserError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(2)
    except (KeyboardInterrupt, click.exceptions.Abort):
        click.echo("stopped.", err=True)
        sys.exit(130)
