"""Exercise 3: a model that answers with a wrong word. python3 wrong_token.py FOLDER   (needs numpy)

It writes its weights into FOLDER, one file for each layer, loads them as engines do, in shards, and answers one prompt. "blue" is
right. It prints its pid and its answer. Which weights are wrong?  (The solution: ../exercises.md. With -truth it says so itself,
to a test.)
"""

import json
import os
import sys
import time

import numpy

WORDS = ["red", "green", "blue", "black"]
LAYERS, SIZE, SHARDS, SEED = 8, 64, 4, 2


def write_weights(folder):
    """The checkpoint: random layers, and a head that has for each word what they make of its prompt. -> the prompt of "blue"."""
    random = numpy.random.default_rng(SEED)
    prompts = states = random.standard_normal((SIZE, len(WORDS))).astype("float32")
    for number in range(LAYERS):
        weight = random.standard_normal((SIZE, SIZE)).astype("float32") / 4
        numpy.save(os.path.join(folder, f"layer{number}.npy"), weight)
        states = numpy.tanh(weight @ states)
    numpy.save(os.path.join(folder, "head.npy"), states.T)
    return prompts[:, WORDS.index("blue")]


class Layer:
    def __init__(self, number, path):
        self.weight = numpy.zeros((SIZE, SIZE), "float32")
        whole = numpy.load(path)
        rows = SIZE // SHARDS
        for shard in range(SHARDS):
            source = shard if (number, shard) != (1, 2) else 0
            self.weight[shard * rows : (shard + 1) * rows] = whole[source * rows : (source + 1) * rows]

    def forward(self, state):
        return numpy.tanh(self.weight @ state)


class Model:
    def __init__(self, folder):
        self.layers = [Layer(number, os.path.join(folder, f"layer{number}.npy")) for number in range(LAYERS)]
        self.head = numpy.load(os.path.join(folder, "head.npy"))

    def answer(self, state):
        for layer in self.layers:
            state = layer.forward(state)
        logits = self.head @ state
        return WORDS[int(logits.argmax())]


def main(folder):
    prompt = write_weights(folder)
    model = Model(folder)
    said = {"pid": os.getpid(), "answer": model.answer(prompt)}
    if "-truth" in sys.argv:  # each layer's weights that are not those of its file: how many, the first
        differ = [numpy.argwhere(numpy.load(f"{folder}/layer{n}.npy") != at.weight) for n, at in enumerate(model.layers)]
        said["differ"] = [[len(found), found[0].tolist() if len(found) else None] for found in differ]
    print(json.dumps(said), flush=True)
    while True:
        time.sleep(1)


if __name__ == "__main__":
    main(sys.argv[1])
