"""Makes a data set of a play's speakers: every speaker is a client, every row a piece of text.

    tests/oracle/speakers.py PLAY.txt FOLDER

A speech begins with a line "NAME:" behind an empty line and ends with the next empty line (the form of
tinyshakespeare, which has 299 speakers). A speaker's speeches are joined in order and cut into rows of --length
characters that do not overlap; each row's label is the character behind it. The last --test of a speaker's rows are its
test rows. FOLDER gets train/ and test/ in LEAF's form, which `data.source = "leaf"` reads: next-token by default.
"""

import argparse
import json
from pathlib import Path


def speeches(play: str) -> dict[str, str]:
    """Everything that each speaker says, by name, in the order of first speeches."""
    said: dict[str, str] = {}
    for paragraph in play.split("\n\n"):
        name, colon, speech = paragraph.strip("\n").partition(":\n")
        if colon and "\n" not in name:
            said[name] = said.get(name, "") + speech + "\n"
    return said


def rows_of(text: str, length: int) -> tuple[list[str], list[str]]:
    """Pieces of `length` characters, the last one shorter, and the character behind each."""
    begins = range(0, len(text) - 1, length)
    ends = [min(begin + length, len(text) - 1) for begin in begins]
    return [text[b:e] for b, e in zip(begins, ends)], [text[e] for e in ends]


def leaf(users: dict[str, tuple[list[str], list[str]]]) -> dict:
    return {
        "users": list(users),
        "num_samples": [len(x) for x, _ in users.values()],
        "user_data": {name: {"x": x, "y": y} for name, (x, y) in users.items()},
    }


def make(play: str, length: int, test: float, least: int) -> tuple[dict, dict]:
    """The training and the test half, in LEAF's form. Speakers with fewer than `least` rows are left out."""
    train_users, test_users = {}, {}
    for name, text in speeches(play).items():
        x, y = rows_of(text, length)
        if len(x) < least:
            continue
        kept = len(x) - int(len(x) * test)
        train_users[name] = (x[:kept], y[:kept])
        if kept < len(x):
            test_users[name] = (x[kept:], y[kept:])
    return leaf(train_users), leaf(test_users)


def write(play: Path, folder: Path, length: int = 80, test: float = 0.2, least: int = 1) -> tuple[dict, dict]:
    """Reads the play and writes folder/train and folder/test. Returns both halves."""
    # LEAF's reader takes bytes, so a character that is not ASCII becomes "?".
    text = play.read_text(encoding="utf-8").encode("ascii", "replace").decode()
    halves = make(text.replace("\r\n", "\n"), length, test, least)
    if not halves[0]["users"]:
        raise SystemExit(f"{play}: no speaker has {least} rows of {length} characters: is it a play?")
    for half, name in zip(halves, ("train", "test")):
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "data.json").write_text(json.dumps(half))
    return halves


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("play", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--length", type=int, default=80, help="characters a row")
    parser.add_argument("--test", type=float, default=0.2, help="share of a speaker's rows that are for testing")
    parser.add_argument("--least", type=int, default=1, help="rows that a speaker needs to be a client")
    options = parser.parse_args()
    if options.length < 1 or not 0 <= options.test < 1 or options.least < 1:
        parser.error("--length and --least are at least 1, --test is in [0, 1)")
    train, test = write(options.play, options.folder, options.length, options.test, options.least)
    print(
        f"{options.folder}: {len(train['users'])} speakers, {sum(train['num_samples'])} training rows, "
        f"{sum(test['num_samples'])} test rows of {len(test['users'])} speakers"
    )


if __name__ == "__main__":
    main()
