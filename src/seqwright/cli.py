"""The command line: a click group whose subcommands are imported lazily, so that `--help` stays fast."""

from __future__ import annotations

import errno
import importlib
import os
import sys
import warnings
from contextlib import suppress
from typing import Any, NoReturn

import click

from seqwright import __version__
from seqwright.commands.hints import command_hint, option_hint, usage_message
from seqwright.core.config import UserError
from seqwright.core.printable import printable
from seqwright.core.warning import SeqwrightWarning
from seqwright.core.wording import on_command_line

COMMANDS = {
    "ladder": "Train models from simple to large on your own data under one time budget, and say which is enough.",
    "demo": "Train a ladder of language models, from n-grams to GPT, on a built-in corpus and compare them.",
    "train": "Train a recipe or a model of your own data; run it again to resume from the last checkpoint.",
    "evaluate": "Evaluate a run on held-out data: scores with signatures and confidence intervals.",
    "compare": "Compare runs on the same data: paired significance tests, examples, recipe differences.",
    "sweep": "Sweep recipe keys and seeds: grid, random search or successive halving, chosen on validation.",
    "mix": "Ensemble several runs: interpolate their probabilities with weights tuned on held-out data.",
    "generate": "Generate text from a prompt, by sampling or beam search.",
    "translate": "Translate each source line of a file.",
    "classify": "Classify texts or images: labels with probabilities.",
    "tag": "Tag every word of a text (parts of speech, named entities, slots).",
    "caption": "Caption images.",
    "chat": "Chat with an assistant.",
    "fill": "Predict the tokens behind <mask> with a masked language model.",
    "embed": "Embed each line of a file with the encoder of a run.",
    "score": "Log-probability, perplexity and surprisal of each line; filter lines by perplexity.",
    "probe": "Probe for bias: minimal pairs of sentences that differ in a pronoun, a name or an origin.",
    "search-audit": "Count the search errors of beam search against exact search.",
    "export": "Export a model to another program's format (ARPA).",
    "import": "Import a model from another program's format (ARPA).",
    "check": "Check the invariants of a trained model: cached = uncached, padded = unpadded, …",
    "tokenize": "Tokenize text and report coverage: unknown tokens, bytes per token, what is lost.",
    "inspect": "Inspect a model on a text: surprisal, attention, gates, back-off, logit lens, saliency.",
    "where": "Find a text, or samples of a model, in its training text: longest matches with file and line.",
    "explain": "Explain an algorithm step by step: attention, rnn, bpe, search, …, with every number.",
    "plan": "Plan a recipe: layers, parameters, mult-adds, memory, training cost and time, before a step is taken.",
    "recipes": "List the built-in recipes, or every key a recipe may have.",
    "runs": "List the runs of a folder with their scores.",
    "data": "List, verify, audit and prepare data sets.",
}


class Commands(click.Group):
    """A click group that imports `commands.NAME` when subcommand NAME is invoked."""

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
            ctx.fail(f"no command '{args[0]}'.{command_hint(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="seqwright")
def seqwright() -> None:
    """Train, evaluate, compare and inspect sequence models on your own data, from n-grams to GPT, BERT and ViT."""


def validate_utf8(arguments: list[str]) -> None:
    """Raises UserError for an argument that is not UTF-8: no prompt, recipe or log could store it.

    Python decodes such bytes of argv to lone surrogates (PEP 383).
    """
    for argument in arguments:
        escaped = argument.encode("utf-8", "backslashreplace").decode()
        if escaped != argument:
            raise UserError(f"the argument '{escaped}' is not UTF-8; write it (or rename the file) in UTF-8.")


ENVIRONMENT = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.EROFS),
    *(errno.EMFILE, errno.ENFILE, errno.ELOOP),
)
"""Errors of the operating system that a user can mend: a full disk, a name that is too long, a missing permission."""


@on_command_line()
def main() -> None:
    """Runs the command line; a UserError becomes one message on standard error and exit code 2."""
    try:
        validate_utf8(sys.argv)
        with warnings.catch_warnings():
            warnings.simplefilter("always", SeqwrightWarning)
            warnings.showwarning = _show_warning
            status = seqwright.main(standalone_mode=False)
        sys.stdout.flush()  # a full disk is met here rather than at exit
        sys.exit(status if isinstance(status, int) else 0)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.NoSuchOption as error:
        hint = option_hint(error.option_name, error.ctx.command) if error.ctx else ""
        _fail(f"no option {error.option_name}.{hint}" if hint else usage_message(error))
    except click.ClickException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # no command at all; click before 8.2 printed the help itself
            click.echo(error.message)
            sys.exit(0)
        _fail(usage_message(error))
    except UserError as error:
        _fail("\n".join((str(error), *getattr(error, "__notes__", ()))))
    except OSError as error:
        if error.errno not in ENVIRONMENT:
            raise
        name = f"{str(error.filename)[:80]}: " if error.filename else ""
        _discard_output()
        _fail(f"{name}{error.strerror}. Choose another file or folder, or make room for it.")
    except (KeyboardInterrupt, click.exceptions.Abort):
        click.echo("stopped.", err=True)
        sys.exit(130)


def _fail(message: str) -> NoReturn:
    _print_error(f"error: {message}")
    sys.exit(2)


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    """Prints ours as one line; those of libraries as Python does."""
    ours = issubclass(category, SeqwrightWarning)
    _print_error(str(message) if ours else warnings.formatwarning(message, category, filename, lineno).rstrip())


def _print_error(text: str) -> None:
    click.echo(printable(text) if sys.stderr.isatty() else text, err=True)


def _discard_output() -> None:
    """Points standard output to nowhere: what is buffered for a full disk would fail again at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
