"""sentence-transformers: a small BERT with pooling encodes, trains with two losses and is saved and loaded."""

import os
import tempfile

import torch
from sentence_transformers import InputExample, SentenceTransformer, losses, util
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from transformers import BertConfig, BertModel, BertTokenizer

folder = tempfile.mkdtemp()
words = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "a",
    "small",
    "cat",
    "dog",
    "sat",
    "ran",
    "on",
    "the",
    "mat",
    "far",
]
with open(os.path.join(folder, "vocab.txt"), "w") as file:
    file.write("\n".join(words))
BertTokenizer(os.path.join(folder, "vocab.txt")).save_pretrained(folder)
torch.manual_seed(0)
BertModel(
    BertConfig(vocab_size=len(words), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
).save_pretrained(folder)
transformer = Transformer(folder, max_seq_length=16)
model = SentenceTransformer(modules=[transformer, Pooling(32), Normalize()], device="cpu")
sentences = ["a small cat sat on the mat", "the dog ran far", "a cat", "the small dog sat"]
found = model.encode(sentences, convert_to_tensor=True, show_progress_bar=False)
print("encoded", tuple(found.shape), util.cos_sim(found, found).sum().item())
print("search", [[hit["corpus_id"] for hit in row] for row in util.semantic_search(found[:2], found, top_k=2)])
for make in (losses.CosineSimilarityLoss, losses.MultipleNegativesRankingLoss):
    criterion = make(model)
    examples = [
        InputExample(texts=[a, b], label=s)
        for a, b, s in zip(sentences, sentences[::-1], (0.1, 0.9, 0.8, 0.2), strict=True)
    ]
    features, labels = model.smart_batching_collate(examples)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model.eval()
    for _ in range(2):
        loss = criterion(features, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(make.__name__, loss.item())
with tempfile.TemporaryDirectory() as saved:
    model.save(saved)
    again = SentenceTransformer(saved, device="cpu")
    print("loaded", bool((again.encode(sentences) == model.encode(sentences)).all()))
