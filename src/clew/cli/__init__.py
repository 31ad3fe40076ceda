"""The command line. `clew --help` lists the verbs."""


def main() -> None:
    """The program `clew`."""
    from clew.cli.app import app

    app()
