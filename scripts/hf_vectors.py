"""python3 scripts/hf_vectors.py DIR > tests/goldens/prepare/vectors.json

What the released code (huggingface/transformers) makes of the checkpoints of quantize/prepare/_encoders.ts, which
scripts/peer_prepare.ts leaves in DIR: the mean of the last hidden rows of some tokens, or a reranker's score. By hand, with
transformers and torch at hand; the test of the same vectors needs none.
"""
import json
import sys

import torch
from transformers import BertModel, Gemma3TextModel, ModernBertForSequenceClassification, ModernBertModel, Qwen3Model

IDS = [(i * 31 + 7) % 250 for i in range(40)]
# The padding token's default lies outside these small vocabularies; EmbeddingGemma's scale is that of its head size.
MODELS = {
    "tiny-bert": (BertModel, {}),
    "tiny-modern-bert": (ModernBertModel, {"pad_token_id": 0}),
    "tiny-modern-bert-reranker": (ModernBertForSequenceClassification, {"pad_token_id": 0, "num_labels": 1}),
    "tiny-gemma-embedding": (Gemma3TextModel, {"query_pre_attn_scalar": 32}),
    "tiny-qwen3-embedding": (Qwen3Model, {}),
}

models = {}
for name, (made_by, options) in MODELS.items():
    model = made_by.from_pretrained(f"{sys.argv[1]}/{name}", dtype=torch.float32, attn_implementation="eager", **options)
    with torch.no_grad():
        out = model.eval()(torch.tensor([IDS]))
    rows = out.logits if "logits" in out else out.last_hidden_state.mean(1)
    models[name] = [float(f"{x:.7g}") for x in rows[0].tolist()]
print(json.dumps({"made_by": "scripts/hf_vectors.py, transformers, F32", "ids": IDS, "models": models}))
