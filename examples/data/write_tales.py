"""Writes tales.txt: short tales from a small grammar, the same ones every time."""

import random
from pathlib import Path

ANIMALS = [
    "fox",
    "hare",
    "owl",
    "bear",
    "mouse",
    "heron",
    "badger",
    "otter",
    "goat",
    "crow",
    "toad",
    "hedgehog",
    "wren",
    "mole",
    "stag",
]
QUALITIES = [
    "old",
    "small",
    "clever",
    "lonely",
    "proud",
    "kind",
    "hungry",
    "sleepy",
    "brave",
    "quiet",
    "curious",
    "grey",
]
PLACES = [
    "under the mill", "by the cold river", "at the edge of the wood", "on the windy hill", "behind the orchard wall",
    "in a hollow oak", "beside the salt marsh", "near the stone bridge", "above the waterfall", "in the tall reeds",
]  # fmt: skip
THINGS = [
    "a silver bell", "a loaf of bread", "a lantern", "a red thread", "a sack of barley", "an empty jar", "a wooden flute",
    "a pair of boots", "a round white stone", "a map with no names", "a key", "the last apple",
]  # fmt: skip
WEATHER = ["the frost came", "the rain would not stop", "the river rose", "the moon was thin", "the first snow fell",
           "the wind turned north", "the harvest was in", "the fog lay low"]  # fmt: skip
LESSONS = [
    "What is shared is never lost.", "A slow step is still a step.", "He who listens hears twice.",
    "A small light is enough for a small room.", "Nobody owns the morning.", "Ask before the door is shut.",
    "The river does not hurry, and it arrives.", "A friend is a fire in winter.", "Count the seeds, not the leaves.",
]  # fmt: skip
ASKS = ["Where are you going", "What do you carry", "Why do you sit here alone", "Who taught you to sing",
        "Will you trade with me", "May I walk with you", "What did the water tell you"]  # fmt: skip
ANSWERS = ["To find my brother", "Only what I was given", "Because the night is long", "The wind, and it was a hard teacher",
           "Not for gold, but for a song", "If you can keep a secret", "That everything comes back"]  # fmt: skip
DEEDS = [
    "they mended the roof together", "they planted what was left", "they sat by the fire until dawn",
    "they crossed the bridge side by side", "they rang the bell three times", "they shared the bread and said nothing",
    "they followed the stream to the sea", "they wrote their names on the stone",
]  # fmt: skip


def article(word):
    return ("an " if word[0] in "aeiou" else "a ") + word


def tale(pick):
    first, second = pick.sample(ANIMALS, 2)
    quality, other = pick.sample(QUALITIES, 2)
    thing = pick.choice(THINGS)
    lines = [
        f"Once there was {article(quality)} {first} who lived {pick.choice(PLACES)}.",
        f"One day {pick.choice(WEATHER)}, and the {first} found {thing}.",
        f"Along came {article(other)} {second}.",
        f'"{pick.choice(ASKS)}?" said the {second}.',
        f'"{pick.choice(ANSWERS)}," said the {first}.',
    ]
    if pick.random() < 0.5:
        lines.append(f'"{pick.choice(ASKS)}?" said the {first}. "{pick.choice(ANSWERS)}," said the {second}.')
    if pick.random() < 0.4:
        lines.append(f"For three nights {pick.choice(WEATHER)}.")
    lines.append(f"So {pick.choice(DEEDS)}.")
    lines.append(f"And the {first} gave the {second} {pick.choice(THINGS)}." if pick.random() < 0.5 else "")
    lines.append(pick.choice(LESSONS))
    return " ".join(line for line in lines if line)


def main():
    pick = random.Random(2026)
    text = "\n\n".join(tale(pick) for _ in range(420)) + "\n"
    Path(__file__).with_name("tales.txt").write_text(text)


if __name__ == "__main__":
    main()
