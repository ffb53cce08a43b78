"""`python -m clusterip` is the `clusterip` command."""

from clusterip.cli.main import main

if __name__ == "__main__":
    main()
