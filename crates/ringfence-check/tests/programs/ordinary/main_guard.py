# profiles: basic, data_science, network, filesystem, strict
"""A module with a docstring that mentions eval, os.system and __class__."""

__version__ = "1.0"
__author__ = "someone"
__all__ = ["main", "__version__"]


def main():
    # os.system('ls') in a comment, and in a text:
    print("import os; os.system('ls')", __name__, __version__)
    return 0


if __name__ == "__main__":
    main()
