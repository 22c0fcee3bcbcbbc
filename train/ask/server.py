"""Replies of an OpenAI-compatible server: a vendor's, vLLM, SGLang, `transformers serve`, a LiteLLM proxy."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from render.png import data_uri
from train.ask.config import Evaluation, refuse_settings
from train.ask.requests import REFUSED, Reply, Request, answer_of_token, best_answer, log_odds_of
from travlr.questions.forms import SETTINGS
from travlr.settings import Log

RETRIES = 6  # by the client, after 408, 409, 429, 5xx, a timeout or a lost connection, with growing pauses
OF_ONE_REQUEST = (400, 413, 415, 422, 451)  # refusals that another request may not meet
GOES_ON = "the answers so far are saved, and the same command goes on"
KEY = "OPENAI_API_KEY"  # the client's environment variable
NO_KEY = "none"  # a local server often needs no key
TOP = 20  # log-probabilities of a token that servers give at most


class Server:
    """A model of a server. Raises `ValueError`, in one line, for a failure that repeated requests do not end."""

    def __init__(self, config: Evaluation, log: Log = print) -> None:
        try:
            from openai import OpenAI
        except ImportError:
            raise ValueError("server=: needs the openai client; install it with: pip install -e '.[server]'") from None
        refuse_settings(config, "is for matchers", "head", "regions")
        self.config, self.settings = config, SETTINGS
        key = read_key()
        self._client = OpenAI(base_url=config.server, api_key=key, timeout=config.timeout, max_retries=RETRIES)
        self._key, self._log = key, log
        # The server's names of two settings, "" for a setting that it does not take.
        self._names = {"max_tokens": "max_tokens", "temperature": "temperature"}
        self._answered = False

    def replies(self, requests: Iterable[Request]) -> Iterator[tuple[Request, Reply]]:
        """Replies as they arrive, not in order. Closing the iterator waits for the requests under way."""
        waiting = iter(requests)
        pending: dict[Future[Reply], Request] = {}
        failure: ValueError | None = None
        refused: list[tuple[Request, Refused]] = []  # before the first reply: of the server, or of these requests?
        with ThreadPoolExecutor(self.config.concurrency) as pool:
            while True:
                while failure is None and not refused and len(pending) < self.config.concurrency:
                    if (request := next(waiting, None)) is None:
                        break
                    pending[pool.submit(self._ask, request)] = request
                if not pending:
                    break
                for future in wait(pending, return_when=FIRST_COMPLETED).done:
                    request = pending.pop(future)
                    try:
                        reply = future.result()
                    except Refused as refusal:
                        refused.append((request, refusal))
                    except ValueError as error:  # the replies under way are still used: they are paid for
                        failure = failure or error
                    else:
                        yield request, reply
                while self._answered and refused:
                    request, first = refused.pop(0)
                    yield request, self._refused(first.words)
        if failure or refused:  # refusals and no answer: the server refuses everything
            raise failure or refused[0][1]

    def _ask(self, request: Request) -> Reply:
        import openai

        url = f"server={self.config.server}"
        advice = GOES_ON if self._answered else "is the URL right? It usually ends in /v1"
        try:
            completion = self._client.chat.completions.create(**self._body(request))
            if error := getattr(completion, "error", None):
                raise self._refusal(*_error_of(error))
            reply = self._reply(request, completion)
        except openai.APIStatusError as error:
            if error.status_code == 400 and self._adapts(str(error.message)):
                return self._ask(request)
            raise self._refusal(error.status_code, str(error.message)) from None
        except openai.APITimeoutError:
            raise ValueError(f"{url}: no reply in {self.config.timeout:g} seconds; {GOES_ON}") from None
        except openai.APIConnectionError:
            raise ValueError(f"{url}: no connection; {advice}") from None
        except (openai.OpenAIError, json.JSONDecodeError, TypeError, AttributeError, IndexError):
            raise ValueError(f"{url}: a reply is no chat completion; {advice}") from None
        self._answered = True
        return reply

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
        if completion.choices is None or completion.choices == []:
            line = "its reply has no choices, so no text"
            raise Refused(f"server={self.config.server}: {line}", line)
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
        lowest = min((token.logprob for token in tokens[0].top_logprobs), default=None)  # of what the server leaves out
        score = log_odds_of(logs, lowest)
        return Reply(best_answer(logs), choice.finish_reason, input_tokens, output_tokens, logs, score)

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
            return ValueError(f"server={self.config.server}: refuses {which} in {KEY} (status {status})")
        if status == 404:
            return ValueError(
                f"server={self.config.server}: has no model={self.config.model}, or the URL is wrong ({message})"
            )
        line = f"server={self.config.server}: status {status} ({message})"
        return Refused(line, message) if status in OF_ONE_REQUEST else ValueError(f"{line}; {GOES_ON}")


def read_key() -> str:
    """The key in the environment. Raises `ValueError` for one that no request can carry."""
    key = os.environ.get(KEY, "").strip()
    if not all("!" <= letter <= "~" for letter in key):
        raise ValueError(f"{KEY}: this environment variable holds a space, a line break or a special letter")
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
            parts.append({"type": "image_url", "image_url": {"url": data_uri(part["image"])}})
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
