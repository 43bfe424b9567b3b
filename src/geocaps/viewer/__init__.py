"""The web page of ``geocaps view``: what is shown (no browser needed) and, apart from it, how viser shows it."""
