"""The command line as tests call it: in this process, with what it printed."""

from geocaps import cli


def command(name):
    """``call(capsys, *arguments)`` of one command: its exit code, standard output and standard error."""

    def call(capsys, *arguments):
        code = cli.run([name, *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call
