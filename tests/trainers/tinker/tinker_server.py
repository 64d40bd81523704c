"""A Tinker server in this process: the HTTP protocol that the `tinker` package speaks, over a model of torch.

Forward passes, gradients, AdamW, sampling and checkpoints are real; the adapter is not: all weights are trained.
Work is done when it is asked for, one request at a time, and kept until it is fetched, as the protocol has it.
"""

from __future__ import annotations

import copy
import json
import math
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import torch

FIXED = {
    "/api/v1/client/config": {"use_pyqwest_transport": False},
    "/api/v1/client/dynamic_config": {},
    "/api/v1/create_session": {"session_id": "session"},
    "/api/v1/session_heartbeat": {"type": "session_heartbeat"},
    "/api/v1/telemetry": {"status": "accepted"},
}


class Model:
    """One model in training."""

    def __init__(self, directory: Path) -> None:
        from transformers import AutoModelForCausalLM

        self.net = AutoModelForCausalLM.from_pretrained(str(directory), dtype=torch.float32)
        self.adam = torch.optim.AdamW(self.net.parameters(), weight_decay=0.0)

    def logprobs(self, ids: list[int]) -> torch.Tensor:
        return torch.log_softmax(self.net(torch.tensor([ids])).logits[0].float(), -1)

    def backward(self, data: list[tuple[list[int], dict[str, np.ndarray]]], loss_fn: str, config: dict[str, float]):
        found = []
        for ids, inputs in data:
            given = {name: torch.from_numpy(value.copy()) for name, value in inputs.items()}
            logp = self.logprobs(ids).gather(-1, given["target_tokens"].unsqueeze(-1)).squeeze(-1)
            _loss(loss_fn, logp, given, config).backward()
            found.append(logp.detach().tolist())
        return found

    def step(self, adam: dict[str, float]) -> None:
        if adam["grad_clip_norm"]:
            torch.nn.utils.clip_grad_norm_(self.net.parameters(), adam["grad_clip_norm"])
        self.adam.param_groups[0].update(
            lr=adam["learning_rate"], betas=(adam["beta1"], adam["beta2"]), eps=adam["eps"]
        )
        self.adam.step()
        self.adam.zero_grad()

    def state(self) -> dict[str, Any]:
        return copy.deepcopy({"net": self.net.state_dict(), "adam": self.adam.state_dict()})

    def load(self, state: dict[str, Any]) -> None:
        self.net.load_state_dict(state["net"])
        self.adam.load_state_dict(copy.deepcopy(state["adam"]))


def _loss(loss_fn: str, logp: torch.Tensor, given: dict[str, torch.Tensor], config: dict[str, float]) -> torch.Tensor:
    """The sums that Tinker documents."""
    if loss_fn == "cross_entropy":
        return -(logp * given["weights"]).sum()
    assert loss_fn == "ppo", loss_fn
    ratio = torch.exp(logp - given["logprobs"])
    clipped = ratio.clamp(config["clip_low_threshold"], config["clip_high_threshold"])
    return -torch.minimum(ratio * given["advantages"], clipped * given["advantages"]).sum()


class TinkerServer:
    """Serves one base model, under the name of its folder."""

    def __init__(self, directory: Path, context: int = 512) -> None:
        self.directory, self.context = directory, context
        self.models: dict[str, Model] = {}
        self.samplers: dict[str, Any] = {}
        self.saved: dict[str, Any] = {}
        self.results: dict[str, Any] = {}
        """JSON, or a message of protobuf."""
        self.asked: list[str] = []
        """The routes of training and sampling, in the order in which they were called."""
        self.script: Any = None
        """Answers samples in the model's place: ids of a prompt to ids and log-probs."""
        self.finished: list[dict[str, Any]] = []
        """Sessions that were ended, and how."""
        self.failing = 0
        """Samples that are refused."""
        self.received: list[tuple[str, list[Any], dict[str, float]]] = []
        """What forward_backward was given: the loss, the data, its settings."""
        self._lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def answer(self, path: str, body: bytes) -> tuple[int, Any]:
        if path in FIXED:
            return 200, FIXED[path]
        if path == "/api/v1/get_server_capabilities":
            return 200, {"supported_models": [{"model_name": str(self.directory), "max_context_length": self.context}]}
        if path == "/api/v1/retrieve_future":
            return 200, self.results[json.loads(body)["request_id"]]
        if path.endswith("/finish"):
            self.finished.append(json.loads(body))
            return 200, {}
        name = path.removeprefix("/api/v1/")
        with self._lock:
            self.asked.append(name)
            return getattr(self, f"_{name}")(body if name == "forward_backward" else json.loads(body))

    def _later(self, result: Any, **more: Any) -> tuple[int, dict[str, Any]]:
        request = f"request-{len(self.results)}"
        self.results[request] = result
        return 200, {"request_id": request, **more}

    def _create_model(self, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if asked["base_model"] != str(self.directory):
            return 400, {"detail": f"{asked['base_model']} is not offered"}
        name = f"{asked['session_id']}:train:{asked['model_seq_id']}"
        self.models[name] = Model(self.directory)
        return self._later({"type": "create_model", "model_id": name})

    def _forward_backward(self, body: bytes) -> tuple[int, dict[str, Any]]:
        from tinker.proto import tinker_public_pb2 as proto

        asked = proto.ForwardBackwardRequest.FromString(body)
        data = [
            (_ids(each), {name: _array(value) for name, value in each.loss_fn_inputs.items()}) for each in asked.data
        ]
        config = dict(asked.loss_fn_config)
        self.received.append((asked.loss_fn, data, config))
        found = self.models[asked.model_id].backward(data, asked.loss_fn, config)
        values = np.concatenate([np.asarray(each, np.float32) for each in found])
        offsets = np.cumsum([0, *(4 * len(each) for each in found)]).astype(np.int64)
        field = proto.BatchedTensor(data=values.tobytes(), offsets=offsets.tobytes(), dtype=proto.DTYPE_FLOAT32)
        record = proto.ArrayRecord(fields={"logprobs": field}, num_datums=len(found))
        return self._later(proto.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord", loss_fn_outputs=[record]))

    def _optim_step(self, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.models[asked["model_id"]].step(asked["adam_params"])
        return self._later({"type": "optim_step"})

    def _save_weights_for_sampler(self, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        name = f"sampler-{len(self.samplers)}"
        self.samplers = {name: copy.deepcopy(self.models[asked["model_id"]])}
        return self._later({"type": "save_weights_for_sampler", "path": None, "sampling_session_id": name})

    def _save_weights(self, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        path = f"tinker://run/weights/{asked['path']}"
        self.saved[path] = self.models[asked["model_id"]].state()
        return self._later({"type": "save_weights", "path": path})

    def _weights_info(self, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if asked["tinker_path"] not in self.saved:
            return 404, {"detail": "no such checkpoint"}
        return 200, {"base_model": str(self.directory), "is_lora": True, "lora_rank": 16}

    def _load_weights(self, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.models[asked["model_id"]].load(self.saved[asked["path"]])
        return self._later({"type": "load_weights", "path": asked["path"]})

    def _asample(self, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        prompt = [token for chunk in asked["prompt"]["chunks"] for token in chunk["tokens"]]
        if self.failing:
            self.failing -= 1
            return 422, {"detail": "the engine lost this one"}
        from tinker.proto import tinker_public_pb2 as proto

        ids, logprobs, why = self._drawn(prompt, asked)
        sequence = proto.SampledSequence(
            stop_reason=proto.STOP_REASON_LENGTH if why == "length" else proto.STOP_REASON_STOP,
            tokens=np.asarray(ids, np.int32).tobytes(),
            logprobs=np.asarray(logprobs, np.float32).tobytes(),
        )
        return self._later(proto.SampleResponse(sequences=[sequence]), sample_sequence_ids=["one"])

    def _drawn(self, prompt: list[int], asked: dict[str, Any]) -> tuple[list[int], list[float], str]:
        wanted = asked["sampling_params"]
        if self.script is not None:
            return *self.script(prompt), "stop"
        model, ids, logprobs = self.samplers[asked["sampling_session_id"]], [], []
        draw = torch.Generator().manual_seed((wanted.get("seed") or 0) % 2**63)
        while len(ids) < wanted["max_tokens"]:
            with torch.no_grad():
                logp = model.logprobs([*prompt, *ids])[-1]
            token = int(torch.multinomial(logp.exp(), 1, generator=draw) if wanted["temperature"] else logp.argmax())
            ids.append(token)
            logprobs.append(float(logp[token]))
            if token in wanted["stop"]:
                return ids, logprobs, "stop"
        return ids, logprobs, "length"


def _ids(datum: Any) -> list[int]:
    return [int(token) for chunk in datum.model_input for token in np.frombuffer(chunk.encoded_text.tokens, np.int32)]


def _array(tensor: Any) -> np.ndarray:
    from tinker.proto import tinker_public_pb2 as proto

    kind = np.int64 if tensor.dtype == proto.DTYPE_INT64 else np.float32
    found = np.frombuffer(tensor.dense, kind)
    assert math.prod(tensor.shape) == len(found)
    return found


def _handler(server: TinkerServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # headers and body in one packet
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            try:
                status, told = server.answer(self.path.partition("?")[0], body)
            except Exception as error:
                status, told = 422, {"detail": f"{type(error).__name__}: {error}"}
            plain = isinstance(told, dict)
            text = json.dumps(told).encode() if plain else told.SerializeToString()
            self.send_response(status)
            self.send_header("Content-Type", "application/json" if plain else "application/x-protobuf")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)
            self.wfile.flush()

        do_GET = do_POST

        def log_message(self, *words: Any) -> None:
            pass

    return Handler
