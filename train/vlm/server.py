"""Replies of an OpenAI-compatible server: a vendor's, vLLM, SGLang, `transformers serve`, a LiteLLM proxy."""

from __future__ import annotations

import base64
import math
import os
import random
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from train.vlm.config import Evaluation
from train.vlm.requests import REFUSED, Reply, Request, answer_of_token, best_answer
from travlr.cli import Log

LONGEST_PAUSE = 60.0  # seconds between two attempts
OF_ONE_REQUEST = (400, 413, 415, 422, 451)  # refusals that another request may not meet
NO_KEY = "none"  # a local server often needs no key
TOP = 20  # log-probabilities of a token that servers give at most


class Server:
    """A model of a server. Raises `ValueError`, in one line, for a failure that repeated requests do not end."""

    def __init__(self, config: Evaluation, log: Log = print) -> None:
        try:
            from openai import OpenAI
        except ImportError:
            raise ValueError("server=: needs the openai client; install it with: pip install -e '.[server]'") from None
        self.config = config
        key = read_key(config.key)
        self._client = OpenAI(base_url=config.server, api_key=key, timeout=config.timeout, max_retries=0)
        self._key, self._log = key, log
        # The server's names of two settings, "" for a setting that it does not take.
        self._names = {"max_tokens": "max_tokens", "temperature": "temperature"}
        self._answered = False
        self._stop = threading.Event()

    def replies(self, requests: Iterable[Request | None]) -> Iterator[tuple[Request, Reply]]:
        """Replies as they arrive, not in order. Closing the iterator waits for the requests under way."""
        waiting = iter(requests)
        pending: dict[Future[Reply], Request] = {}
        failure: BaseException | None = None
        refused: list[tuple[Request, Refused]] = []  # before the first reply: of the server, or of these requests?
        with ThreadPoolExecutor(self.config.concurrency) as pool:
            try:
                while True:
                    while failure is None and not refused and len(pending) < self.config.concurrency:
                        if (request := next(waiting, None)) is None:
                            break
                        pending[pool.submit(self._ask, request)] = request
                    if not pending:
                        if refused:  # and nothing else was answered
                            failure = failure or refused[0][1]
                        break
                    try:
                        arrived = wait(pending, return_when=FIRST_COMPLETED).done
                    except KeyboardInterrupt as interrupt:  # once; a second one ends the wait
                        if isinstance(failure, KeyboardInterrupt):
                            raise
                        failure = interrupt
                        self._stop.set()
                        self._log(f"waiting for {len(pending)} replies that are under way; Ctrl-C again gives them up")
                        continue
                    for future in arrived:
                        request = pending.pop(future)
                        try:
                            reply = future.result()
                        except Refused as refusal:
                            refused.append((request, refusal))
                        except ValueError as error:  # the replies under way are still used: they are paid for
                            failure = failure or error
                            self._stop.set()
                        else:
                            yield request, reply
                    while self._answered and refused:
                        request, first = refused.pop(0)
                        yield request, self._refused(first.words)
            finally:
                self._stop.set()  # ends the pauses of requests that would be sent again
        if failure is not None:
            raise failure

    def _ask(self, request: Request) -> Reply:
        import openai

        problem, pause = "the request was refused", None
        for attempt in range(self.config.retries + 1):
            status, message = 0, ""
            try:
                completion = self._client.chat.completions.create(**self._body(request))
                if not (error := getattr(completion, "error", None)):
                    reply = self._reply(request, completion)
                    self._answered = True
                    return reply
                status, message, pause = *_error_of(error), None
            except openai.APIStatusError as error:
                status, message, pause = error.status_code, str(error.message), _retry_after(error.response.headers)
            except openai.APITimeoutError:
                problem, pause = f"no reply in {self.config.timeout:g} seconds", None
            except openai.APIConnectionError:
                problem, pause = "no connection", None
            except (openai.OpenAIError, ValueError, TypeError, AttributeError, IndexError) as error:
                if isinstance(error, NoLogProbabilities):
                    raise
                problem, pause = "a reply that is no chat completion", None
            if status:
                if status == 400 and self._adapts(message):
                    continue
                if status not in (408, 409, 429) and status < 500:
                    raise self._refusal(status, message)
                problem = f"status {status} ({self._message(message)})"
            if attempt < self.config.retries:
                grown = min(LONGEST_PAUSE, 0.5 * 2**attempt) * (1 + random.random()) / 2
                self._stop.wait(min(LONGEST_PAUSE, pause) if pause is not None else grown)
            if self._stop.is_set():
                break
        advice = "the answers so far are saved, and the same command goes on"
        if not self._answered and not problem.startswith("status"):
            advice = "is the URL right? It usually ends in /v1"
        raise ValueError(
            f"server={self.config.server}: {problem}, tried {attempt + 1} time{'s' * (attempt > 0)}; {advice}"
        )

    def _adapts(self, message: str) -> bool:
        """Whether a refused request can be sent in another form: some models take `max_completion_tokens` in place of
        `max_tokens`, or only their own temperature."""
        for name, replacement in (("max_tokens", "max_completion_tokens"), ("temperature", "")):
            if f"'{name}'" in message and self._names[name] == name:
                self._names[name] = replacement
                change = f"{replacement} is sent" if replacement else "left out"
                self._log(f"server={self.config.server}: takes no {name}; {change}")
                return True
            if f"'{name}'" in message and self._names[name] == replacement:
                return True  # after the refusal of another request
        return False

    def _body(self, request: Request) -> dict[str, Any]:
        config, likelihood = self.config, self.config.answers == "likelihood"
        body: dict[str, Any] = {"model": config.model, "messages": [_openai(m) for m in request.messages]}
        values = {"max_tokens": 1 if likelihood else config.most_tokens, "temperature": config.temperature}
        body |= {self._names[name]: value for name, value in values.items() if self._names[name]}
        if config.temperature:
            body["seed"] = config.seed
        if likelihood:
            body |= {"logprobs": True, "top_logprobs": TOP}
        return body

    def _reply(self, request: Request, completion: Any) -> Reply:
        choice = completion.choices[0]
        if refusal := getattr(choice.message, "refusal", None):
            return self._refused(str(refusal))
        text = choice.message.content or ""
        if isinstance(text, list):  # parts
            text = "".join(part["text"] for part in text if part["type"] == "text")
        usage = completion.usage
        input_tokens, output_tokens = (usage.prompt_tokens, usage.completion_tokens) if usage else (None, None)
        if not isinstance(text, str) or not all(isinstance(n, int | None) for n in (input_tokens, output_tokens)):
            raise TypeError("text and numbers of tokens of a chat completion have other types")
        if self.config.answers == "generate":
            return Reply(text, choice.finish_reason, input_tokens, output_tokens)
        tokens = choice.logprobs and choice.logprobs.content
        if not tokens:
            raise NoLogProbabilities(f"server={self.config.server}: gives no log-probabilities; use answers=generate")
        logs: dict[str, float] = {}
        for token in tokens[0].top_logprobs:
            if answer := answer_of_token(token.token, request.question):
                log = token.logprob
                logs[answer] = math.log(math.exp(logs[answer]) + math.exp(log)) if answer in logs else log
        return Reply(best_answer(logs), choice.finish_reason, input_tokens, output_tokens, logs)

    def _message(self, message: str) -> str:
        """What the server says of a request, in one line without the key."""
        message = message.replace(self._key, "[key]") if self._key != NO_KEY else message
        return " ".join(message.split())[:200]

    def _refused(self, words: str) -> Reply:
        """A reply without an answer, of a request that the server or the model refuses."""
        return Reply(
            self._message(words), REFUSED, log_probabilities={} if self.config.answers == "likelihood" else None
        )

    def _refusal(self, status: int, message: str) -> ValueError:
        """The error of a request that the server refuses: `Refused` where another request may be answered."""
        message = self._message(message)
        if status in (401, 403):
            which = "the key" if self._key != NO_KEY else "a request without a key; it is missing"
            return ValueError(f"server={self.config.server}: refuses {which} in {self.config.key} (status {status})")
        if status == 404:
            return ValueError(
                f"server={self.config.server}: has no model={self.config.model}, or the URL is wrong ({message})"
            )
        line = f"server={self.config.server}: refuses the request (status {status}: {message})"
        return Refused(line, message) if status in OF_ONE_REQUEST else ValueError(line)


def read_key(variable: str) -> str:
    """The key in an environment variable. Raises `ValueError` for one that no request can carry, and for a variable
    other than the default that is not set."""
    key = os.environ.get(variable, "").strip()
    if not key and variable != Evaluation.key:
        raise ValueError(f"key={variable}: this environment variable is not set")
    if not all("!" <= letter <= "~" for letter in key):
        raise ValueError(f"key={variable}: this environment variable holds a space, a line break or a special letter")
    return key or NO_KEY


class Refused(ValueError):
    """The server refuses a request for good, for example because of its content. words: what it says."""

    def __init__(self, line: str, words: str) -> None:
        super().__init__(line)
        self.words = words


class NoLogProbabilities(ValueError):
    """The server gives no log-probabilities."""


def _openai(message: dict[str, Any]) -> dict[str, Any]:
    """A message with pictures as data URIs."""
    parts: list[dict[str, Any]] = []
    for part in message["content"]:
        if part["type"] == "image":
            data = base64.b64encode(part["image"]).decode()
            kind = "jpeg" if part["image"][:2] == b"\xff\xd8" else "png"
            parts.append({"type": "image_url", "image_url": {"url": f"data:image/{kind};base64,{data}"}})
        else:
            parts.append(part)
    text_only = all(part["type"] == "text" for part in parts)  # as text: some models take no lists of parts
    return {"role": message["role"], "content": "\n\n".join(p["text"] for p in parts) if text_only else parts}


def _error_of(error: Any) -> tuple[int, str]:
    """The status and the words of an error that came with status 200; 400 if it has no status."""
    if not isinstance(error, dict):
        return 400, str(error)
    code = str(error.get("code") or error.get("status"))
    return int(code) if code.isdecimal() and 400 <= int(code) < 600 else 400, str(error.get("message") or error)


def _retry_after(headers: Any) -> float | None:
    try:
        return max(0.0, float(headers.get("retry-after")))
    except (TypeError, ValueError):
        return None
