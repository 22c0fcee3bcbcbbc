"""The evaluation command where there is no `evaluate.py`: `python -m train.ask --help`."""

from train.ask.command import command

if __name__ == "__main__":
    command()
