"""``python -m dial_client`` is ``dial-chat``."""

from dial_client.cli import main

if __name__ == "__main__":
    main()
