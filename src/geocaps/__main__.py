"""``python -m geocaps`` is the ``geocaps`` command (``torchrun -m geocaps train`` needs it)."""

from geocaps.cli import main

if __name__ == "__main__":
    main()
