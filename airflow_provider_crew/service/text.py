"""What others say, on its way into a log or an error."""


def one_line(text: str, most: int) -> str:
    """
    Return the text on one line and not too long, without characters that a terminal obeys or that turn it around.

    Whoever writes it could otherwise forge the next line of a log, or hide what stands there.
    """
    if len(text) <= most and text.isprintable() and "  " not in text:
        return text.strip()
    # Cut first: what others say may be as long as an answer.
    line = " ".join(text[: 4 * most].split())
    shown = "".join(character if character.isprintable() else "\ufffd" for character in line[:most])
    return shown if len(line) <= most and len(text) <= 4 * most else f"{shown}…"
