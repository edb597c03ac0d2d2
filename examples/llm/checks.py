"""What a haiku must have, as far as a program can tell."""


def three_lines(text):
    return len(text.strip().splitlines()) == 3


def rain(text):
    return "rain" in text.lower()
