"""The evaluation command: `python evaluate.py --help`."""

from travlr.start import start_command

if __name__ == "__main__":
    start_command("evaluate", "train.vlm.command")
