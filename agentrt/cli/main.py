"""The command line. Heavy packages are imported inside the commands, so that `--help` answers at once."""

import signal
import sys
import traceback
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from agentrt.cli import (
    compare,
    config,
    doctor,
    drift,
    log,
    models,
    profile,
    replay,
    resume,
    roles,
    run,
    schemes,
    serve_bench,
    train,
)
from agentrt.cli.eval import evaluate
from agentrt.cli.options import JSON_KEY, VERBOSE_KEY
from agentrt.errors import AgentrtError, ConfigError, UsageError


class Terminated(KeyboardInterrupt):
    """SIGTERM, handled like Ctrl-C."""


class CommandGroup(TyperGroup):
    """Ends with the exit code of whatever error a command raises, after one clean message."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            code = 143 if isinstance(stop, Terminated) else 130
            sys.stderr.write(f"\ninterrupted{': ' if stop.args else ''}{' '.join(map(str, stop.args))}\n")
        except BrokenPipeError:
            sys.stderr.close()  # nobody reads on; the interpreter must not complain about it at exit
            code = 141
        except AgentrtError as error:
            code = error.exit_code
            _report(error, code, ctx.meta)
        except (typer.Exit, typer.Abort):
            raise
        except Exception as error:
            if hasattr(error, "format_message"):  # a usage error: typer shows it, with the command's usage
                raise
            told = _of_a_path(error)
            code = told.exit_code if told is not None else AgentrtError.exit_code
            _report(told or error, code, ctx.meta)
        raise typer.Exit(code)


def _of_a_path(error: Exception) -> UsageError | None:
    """What to tell of an error of the operating system that names a path: such paths are the user's."""
    if not isinstance(error, OSError) or error.filename is None:
        return None
    told = UsageError(f"{error.filename}: {error.strerror}; give another path, or make this one fit for use")
    told.__cause__ = error
    return told


def _report(error: Exception, code: int, meta: dict[str, Any]) -> None:
    from agentrt.cli.output import Output, printable

    verbose, as_json = meta.get(VERBOSE_KEY, False), meta.get(JSON_KEY, False)
    if verbose:
        sys.stderr.write(printable("".join(traceback.format_exception(error))))
    elif isinstance(error, AgentrtError):
        sys.stderr.write(printable(f"error: {error}\n"))
    else:
        sys.stderr.write(printable(f"error: this is a bug in agentrt: {type(error).__name__}: {error}\n"))
        sys.stderr.write("run it again with -v for the traceback, and report it\n")
    problems = [problem._asdict() for problem in error.problems] if isinstance(error, ConfigError) else []
    Output(as_json=as_json).record(
        {
            "event": "error",
            "kind": type(error).__name__,
            "message": str(error),
            **({"problems": problems} if problems else {}),
            "exit_code": code,
        }
    )


def _version(show: bool) -> None:
    if show:
        from importlib.metadata import PackageNotFoundError, version

        try:
            sys.stdout.write(f"agentrt {version('agentrt')}\n")
        except PackageNotFoundError:
            sys.stdout.write("agentrt of an unknown version: a checkout that is not installed\n")
        raise typer.Exit


app = typer.Typer(
    name="agentrt",
    cls=CommandGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Plan, act and reflect agents as LoRA adapters on one local model, sharing one KV cache.",
)


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", is_eager=True, callback=_version, help="Show the version."),
) -> None:
    pass


app.command("run")(run.run)
app.command("resume")(resume.resume)
app.command("eval")(evaluate)
app.command("compare")(compare.compare)
app.command("replay")(replay.replay)
app.command("drift")(drift.drift)
app.command("profile")(profile.profile)
app.command("serve-bench")(serve_bench.serve_bench)
app.command("train")(train.train)
app.command("schemes")(schemes.schemes)
app.add_typer(roles.app, name="roles")
app.add_typer(log.app, name="log")
app.add_typer(models.app, name="models")
app.command("doctor")(doctor.doctor)
app.add_typer(config.app, name="config")


def _terminate(signum: int, frame: object) -> NoReturn:
    raise Terminated


def main() -> None:
    """The console script; ends the process with the exit code."""
    signal.signal(signal.SIGTERM, _terminate)
    app()
