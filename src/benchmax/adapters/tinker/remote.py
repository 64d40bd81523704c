"""The model on Tinker's server: a LoRA adapter that is sampled from, trained and saved there.

Requests go out through the `tinker` package, which reads `TINKER_API_KEY` and `TINKER_BASE_URL` and repeats what fails
for a while. What it raises in the end arrives as one of benchmax's errors.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmax.adapters.engine_model import Ask, Drawn
from benchmax.adapters.tinker.credentials import KEY, check_here
from benchmax.adapters.tinker.server_liveness import ServerLiveness
from benchmax.errors import BenchmaxError, ModelProtocolError, ModelUnavailable, UsageError, describe_error
from benchmax.inference.tokens.chat import ChatTokens

CLOSE_SECONDS = 5.0
MODELS_SHOWN = 20
SEED_LIMIT = 2**31
"""Seeds that a server takes: those of 32 bits with a sign. Ours have 63."""


class RemoteModel:
    """One model that a Tinker server trains, and the weights that are sampled from."""

    def __init__(self, service: Any, training: Any, name: str) -> None:
        self.name = name
        self._service, self._training = service, training
        self._sampling: Any = None
        self._server = ServerLiveness(base_url())

    @classmethod
    def connect(cls, name: str, *, rank: int, seed: int) -> RemoteModel:
        """A fresh adapter on a base model, which is named as the server names it."""
        check_here()
        import tinker

        def begin() -> RemoteModel:
            service = tinker.ServiceClient()
            _check_offered(name, service.get_server_capabilities().supported_models)
            return cls(service, service.create_lora_training_client(base_model=name, rank=rank, seed=seed), name)

        with _benchmax_errors("cannot start to train", name):
            return ServerLiveness(base_url()).wait(begin)

    def chat(self) -> ChatTokens:
        """The model's tokens and chat template; those of a local folder where the name is one."""
        if Path(self.name).is_dir():
            return ChatTokens(Path(self.name))
        with _benchmax_errors("has no tokenizer here for", self.name):
            return ChatTokens.of_tokenizer(self._training.get_tokenizer())

    def context(self) -> int | None:
        """Most tokens of a conversation, where the server says."""
        with _benchmax_errors("does not answer about", self.name):
            models = self._server.wait(self._service.get_server_capabilities).supported_models
        found = (getattr(each, "max_context_length", None) for each in models if each.model_name == self.name)
        return next(found, None)

    # Sampling

    def push(self) -> None:
        """Sample with the current weights from here on."""
        with _benchmax_errors("cannot sample from", self.name):
            self._sampling = self._server.wait(self._training.save_weights_and_get_sampling_client)

    async def sample(self, ask: Ask, stop_ids: Sequence[int]) -> Drawn:
        """What follows some ids, with its log-probs."""
        import tinker

        sampling = ask.sampling
        wanted = tinker.SamplingParams(
            max_tokens=sampling.max_tokens,
            seed=None if sampling.seed is None else sampling.seed % SEED_LIMIT,
            stop=list(stop_ids),
            temperature=1.0 if sampling.temperature is None else sampling.temperature,
            top_p=1.0 if sampling.top_p is None else sampling.top_p,
        )
        sampling_there = self._sampling.sample_async(
            prompt=tinker.ModelInput.from_ints(ask.prompt), num_samples=1, sampling_params=wanted
        )
        found = await self._server.wait_async(sampling_there)
        sequence = found.sequences[0]
        if sequence.logprobs is None:
            raise ModelProtocolError(f"Tinker returned no log-probs for {self.name}. Train a model that reports them.")
        return Drawn(sequence.tokens, sequence.logprobs, "length" if sequence.stop_reason == "length" else "stop")

    def check_alive(self) -> None:
        """Raise ModelUnavailable when there is no server any more."""
        if not self._server.answers():
            raise ModelUnavailable("Tinker's server does not answer any more. Resume the run when it does.")

    # Training

    def update(self, losses: Sequence[tuple[str, Sequence[Any], Mapping[str, float]]], adam: Any) -> list[list[Any]]:
        """Add the gradients of some losses and take one optimizer step; returns each datum's log-probs, by loss.

        All of it is submitted before the first answer is awaited: the server works in fixed rounds.
        """

        def both() -> list[Any]:
            passes = [
                self._training.forward_backward(list(data), loss, loss_fn_config=dict(config) or None)
                for loss, data, config in losses
            ]
            step = self._training.optim_step(adam)
            outputs = [each.result().loss_fn_outputs for each in passes]
            step.result()
            return outputs

        with _benchmax_errors("failed to update", self.name):
            outputs = self._server.wait(both)
        return [[output["logprobs"].to_numpy() for output in each] for each in outputs]

    # Checkpoints

    def save(self, label: str) -> str:
        """Keep weights and optimizer on the server; returns the path to them."""
        with _benchmax_errors("failed to save", self.name):
            saved = self._server.wait(lambda: self._training.save_state(f"{label}-{secrets.token_hex(4)}").result())
        path: str = saved.path
        return path

    def load(self, path: str) -> None:
        """Go on from weights and optimizer that were saved."""
        with _benchmax_errors(f"cannot load {path} of", self.name):
            load = self._service.create_training_client_from_state_with_optimizer
            self._training = self._server.wait(lambda: load(path))

    def close(self, status: str = "success") -> None:
        """End the session on the server, as far as it answers: "success" or "errored"."""
        with suppress(Exception):  # the run is over, whatever becomes of the session
            self._service.close(status).result(timeout=CLOSE_SECONDS)


def base_url() -> str:
    """Where the server is, as the package finds it."""
    from tinker.lib.base_url import resolve_base_url

    found: str = resolve_base_url()
    return found


def _check_offered(name: str, models: Sequence[Any]) -> None:
    """Refuse a model that the server does not have; one with a single model trains that one, whatever is asked for."""
    names = [each.model_name for each in models]
    if names and name not in names:
        shown = ", ".join(map(str, names[:MODELS_SHOWN])) + (", …" if len(names) > MODELS_SHOWN else "")
        raise UsageError(f"Tinker's server does not offer {name}. Name a model that it offers: {shown}.")


@contextmanager
def _benchmax_errors(what: str, name: str) -> Iterator[None]:
    """Raise what the package raises as errors of benchmax, with what to do."""
    import tinker

    try:
        yield
    except BenchmaxError:
        raise
    except (tinker.AuthenticationError, tinker.PermissionDeniedError) as error:
        raise UsageError(f"Tinker refuses the key: {describe_error(error)}. Set {KEY} to a valid one.") from error
    except (tinker.BadRequestError, tinker.NotFoundError) as error:
        raise UsageError(f"Tinker {what} {name}: {describe_error(error)}. Name a model that it offers.") from error
    except (tinker.TinkerError, OSError, RuntimeError, ValueError) as error:
        raise ModelUnavailable(
            f"Tinker {what} {name}: {describe_error(error)}. Resume the run when its server answers."
        ) from error
