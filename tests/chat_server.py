"""A small OpenAI-compatible server for tests, which fails in the ways that real ones do."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Respond = Callable[[dict[str, Any]], str]  # the body of a request -> the text of the reply


class ChatServer:
    """Use it as a context. respond: gives the reply of each request. faults: what happens to the first requests, one
    name for each: 429, 500, half, nonsense, text, tokens, closed. refusal: a status for every request, such as
    401. refuses: of a request a status, an error, or a message; None to answer it.
    modern: takes max_completion_tokens and no temperature, as the newest models of vendors do, and counts no
    tokens.

    bodies: of all requests. answered: how many had a whole reply.
    """

    def __init__(
        self,
        respond: Respond,
        faults: tuple[str, ...] = (),
        refusal: int = 0,
        logprobs: bool = True,
        modern: bool = False,
        refuses: Callable[[dict[str, Any]], Any] = lambda _: None,
    ) -> None:
        self.respond, self.faults, self.refusal, self.logprobs = respond, list(faults), refusal, logprobs
        self.modern, self.refuses = modern, refuses
        self.bodies: list[dict[str, Any]] = []
        self.keys: set[str] = set()
        self.answered = 0
        self._lock = threading.Lock()

    def __enter__(self) -> ChatServer:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                server.handle(self)

            def log_message(self, *_: object) -> None: ...

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}/v1"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def handle(self, http: BaseHTTPRequestHandler) -> None:
        body = json.loads(http.rfile.read(int(http.headers["Content-Length"])))
        with self._lock:
            self.bodies.append(body)
            self.keys.add(str(http.headers["Authorization"]))
            fault = self.faults.pop(0) if self.faults else ""
        for name in ("max_tokens", "temperature"):
            if self.modern and name in body:
                return send(http, 400, {"error": {"message": f"Unsupported parameter: '{name}' is not supported."}})
        refused = self.refuses(body)
        if isinstance(refused, int):
            return send(http, refused, {"error": {"message": "filtered: the answer is true"}})
        if refused and ("error" in refused or "choices" in refused):
            return send(http, 200, refused)
        if refused:
            completion = self._completion(body)
            completion["choices"][0]["message"] |= refused
            return send(http, 200, completion)
        if self.refusal:
            return send(http, self.refusal, {"error": {"message": f"refused {http.headers['Authorization']}"}})
        if fault in ("429", "500"):
            return send(http, int(fault), {"error": {"message": "later"}}, {"Retry-After": "0"})
        if fault == "closed":
            return http.connection.close()
        if fault in ("half", "nonsense"):
            return send(http, 200, '{"choices": [{"mess' if fault == "half" else {"choices": "none", "usage": 3})
        if fault in ("text", "tokens"):
            completion = self._completion(body)
            if fault == "text":
                completion["choices"][0]["message"]["content"] = 7
            else:
                completion["usage"]["prompt_tokens"] = "many"
            return send(http, 200, completion)
        with self._lock:
            self.answered += 1
        return send(http, 200, self._completion(body))

    def _completion(self, body: dict[str, Any]) -> dict[str, Any]:
        text = self.respond(body)
        message = {"role": "assistant", "content": text}
        choice: dict[str, Any] = {"index": 0, "finish_reason": "stop", "message": message}
        if body.get("logprobs") and self.logprobs:
            other = {"true": "false", "false": "true"}.get(text, "B")
            logs = {text: -0.1, f" {other}": -3.0}
            top = [{"token": token, "logprob": log, "bytes": None} for token, log in logs.items()]
            choice["logprobs"] = {"content": [{**top[0], "top_logprobs": top}], "refusal": None}
        usage = None if self.modern else {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        return {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}


def send(http: BaseHTTPRequestHandler, status: int, content: Any, headers: dict[str, str] | None = None) -> None:
    data = (content if isinstance(content, str) else json.dumps(content)).encode()
    http.send_response(status)
    about = {"Content-Type": "application/json", "Content-Length": str(len(data))}
    for name, value in (about | (headers or {})).items():
        http.send_header(name, value)
    http.end_headers()
    http.wfile.write(data)


def text_and_picture(body: dict[str, Any]) -> tuple[str, bytes | None]:
    """The text of a request, and the bytes of its picture."""
    content = body["messages"][0]["content"]
    if isinstance(content, str):
        return content, None
    text = "\n\n".join(part["text"] for part in content if part["type"] == "text")
    urls = [part["image_url"]["url"] for part in content if part["type"] == "image_url"]
    return text, base64.b64decode(urls[0].partition(",")[2]) if urls else None
