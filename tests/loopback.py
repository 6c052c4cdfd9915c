"""A stand-in for the IBM Quantum service on 127.0.0.1, for the UNMODIFIED client ``qiskit_ibm_runtime``.

    python tests/loopback.py --port 8123 --directory /some/where        prints the environment a client needs

It shows how this package and IBM's client behave: requests, encodings and decoding of both sampler classes, job, Batch
and Session mode, retrieval from a fresh process, polling, cancellation, tags, usage, and what happens when requests or
jobs go wrong. Jobs and results live in a directory, so a service that is stopped and started again still has them.

It cannot show what only IBM knows: how IBM validates circuits and payloads, what its limits, queues, fair share and
billing do, how soon a new job is listed under its tag, what a real error message says, whether a chip drifts. Shapes
of answers are inferred from the client's source. Samples depend on the angles and the number of shots alone, so that
an interrupted run can be compared with one that was not; a chip never repeats itself.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import queue
import re
import secrets
import shutil
import socket
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta, timezone
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np

TOKEN = "loopback-secret-token-7f3a91"
CRN = "crn:v1:bluemix:public:quantum-computing:us-east:a/0123456789abcdef:loopback-instance::"
PREFIX = "/experimental/api/v1"
#: The machines: name, and the fake device it is a copy of.
DEVICES = {"ibm_loopback": "fake_fez", "ibm_small": "fake_manila"}
ENDED = ("Completed", "Failed", "Cancelled")


@dataclass
class Fault:
    """What goes wrong with requests that match: ``on`` is a regular expression for ``"POST /jobs$"`` and the like.

    The first ``skip`` matches pass, the next ``times`` suffer: they wait ``delay`` seconds, call ``call``, and are
    answered with ``status``, or lose their connection (``drop``), or are answered properly if neither is set.
    With ``after`` the request is carried out first: the service has done it, the client does not learn of it.
    """

    on: str
    times: int = 1
    skip: int = 0
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: str = '{"errors": [{"message": "injected fault", "code": 1000}]}'
    delay: float = 0.0
    drop: bool = False
    after: bool = False
    call: Callable[[], None] | None = None

    def strikes(self, request: str) -> bool:
        if not re.search(self.on, request) or self.times <= 0:
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        self.times -= 1
        return True


@dataclass
class Job:
    """A job as the service keeps it. ``outcome`` is what will become of it: see ``Loopback.outcomes``."""

    id: str
    backend: str
    program: str
    tags: list[str]
    session: str | None
    created: str
    outcome: str
    delay: float
    max_seconds: float | None = None
    state: str = "Queued"
    reason: str = ""
    reason_code: int | None = None
    running: str | None = None
    finished: str | None = None
    usage: float = 0.0
    executions: int = 0


class Loopback:
    """The service. ``with Loopback(directory) as service:`` starts and stops it.

    Attributes:
        outcomes: what becomes of the next jobs, in order: ``ok`` (also when the list is empty), ``failed``,
            ``cancelled``, ``too_long``, ``never``, ``wrong_shots``, ``fewer_rows``, ``truncated``, ``malformed``,
            ``empty``, ``other_register``.
        delays: seconds that the next jobs take, in order; then ``delay``.
        last_first: so many jobs are waited for, and then run in the reverse of their order; 0 for each as it comes.
        faults: what goes wrong with requests.
        requests: all requests so far, as ``"GET /jobs/ID"``.
    """

    def __init__(
        self, directory: Path, port: int = 0, *, delay: float = 0.0, noise: bool = False, seconds_left: float = 600.0
    ) -> None:
        self.directory, self.delay, self.noise = Path(directory), delay, noise
        self.directory.mkdir(parents=True, exist_ok=True)
        self.port = port or _free_port()
        self.outcomes: list[str] = []
        self.delays: list[float] = []
        self.last_first = 0
        self._waiting: list[Job] = []
        self.faults: list[Fault] = []
        self.requests: list[str] = []
        self.jobs: dict[str, Job] = {}
        self.sessions: dict[str, dict[str, Any]] = {}
        self.seconds_limit = seconds_left
        self.status = "active"
        self.lock = threading.RLock()
        self._server: ThreadingHTTPServer | None = None
        self._work: queue.SimpleQueue[Job] = queue.SimpleQueue()
        threading.Thread(target=self._worker, daemon=True).start()

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> Loopback:
        for fake in DEVICES.values():  # not in the threads of requests, which end: see ``_worker``
            _files(fake)
        handler = type("Handler", (_Handler,), {"service": self})
        self._server = _Server(("127.0.0.1", self.port), handler)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        for path in sorted(self.directory.glob("*.job")):
            job = Job(**json.loads(path.read_text()))
            self.jobs[job.id] = job
            if job.state not in ENDED:
                self._later(job)
        return self

    def stop(self) -> None:
        """Close the port, as a service that is gone; what it has is on disk."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        with self.lock:
            self.jobs = {}

    def __enter__(self) -> Loopback:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def environment(self, home: Path | None = None) -> dict[str, str]:
        """The variables under which the client speaks to this service and to nobody else."""
        root = f"http://127.0.0.1:{self.port}"
        return {
            "QISKIT_IBM_TOKEN": TOKEN,
            "QISKIT_IBM_INSTANCE": CRN,
            "QISKIT_IBM_URL": root + PREFIX,
            "IAM_URL": root,
            "GLOBAL_SEARCH_URL": root,
            "GLOBAL_CATALOG_URL": root + "/catalog",
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
            **({} if home is None else {"HOME": str(home)}),
        }

    def reset(self) -> None:
        """Forget everything but the port."""
        with self.lock:
            self.jobs.clear()
            self.sessions.clear()
            self.outcomes, self.delays, self.faults, self.requests = [], [], [], []
            self.delay, self.seconds_limit, self.status = 0.0, 600.0, "active"
            self.last_first, self._waiting = 0, []
        for path in self.directory.iterdir():
            path.unlink()

    def count(self, pattern: str) -> int:
        """Requests so far that match."""
        return sum(re.search(pattern, request) is not None for request in list(self.requests))

    # -- jobs ---------------------------------------------------------------------------------------------------------

    def submit(self, request: dict[str, Any], params: str) -> Job:
        with self.lock:
            job = Job(
                id="d" + secrets.token_hex(9),
                backend=request["backend"],
                program=request["program_id"],
                tags=request.get("tags", []),
                session=request.get("session_id"),
                created=_now(),
                outcome=self.outcomes.pop(0) if self.outcomes else "ok",
                delay=self.delays.pop(0) if self.delays else self.delay,
                max_seconds=request.get("cost"),
            )
            (self.directory / f"{job.id}.params").write_text(params)
            self._keep(job)
            self.jobs[job.id] = job
            if self.last_first:
                self._waiting.append(job)
                if len(self._waiting) == self.last_first:
                    while self._waiting:
                        self._work.put(self._waiting.pop())
                return job
        self._later(job)
        return job

    def cancel(self, job: Job) -> bool:
        with self.lock:
            if job.state in ENDED:
                return False
            self._end(job, "Cancelled", "cancelled by the user")
        return True

    def result(self, job: Job) -> str:
        path = self.directory / f"{job.id}.result"
        return path.read_text() if path.exists() else ""

    def wait(self, states: tuple[str, ...] = ENDED, count: int = 1, seconds: float = 30.0) -> None:
        """Until ``count`` jobs are in one of the states."""
        end = time.monotonic() + seconds
        while sum(job.state in states for job in list(self.jobs.values())) < count:
            assert time.monotonic() < end, f"no {count} jobs in {states}: {self.jobs}"
            time.sleep(0.02)

    def _later(self, job: Job) -> None:
        threading.Timer(job.delay, self._work.put, (job,)).start()

    def _worker(self) -> None:
        """One thread simulates all jobs.

        Threads that use Qiskit must not end: where one has ended, the next one that starts, be it one of Qiskit's own,
        may crash in Qiskit's allocator (mimalloc issue 1287).
        """
        while True:
            self._run(self._work.get())

    def _run(self, job: Job) -> None:
        with self.lock:
            if job.state in ENDED or job.id not in self.jobs:
                return
            job.state, job.running = "Running", _now()
            self._keep(job)
        if job.outcome == "never":
            return
        if job.outcome == "failed":
            (self.directory / f"{job.id}.result").write_text("Traceback: control electronics are on fire")
            self._end(job, "Failed", "control electronics are on fire", 9999)
            return
        if job.outcome == "cancelled":
            self._end(job, "Cancelled", "cancelled by the operator")
            return
        if job.outcome == "too_long":
            (self.directory / f"{job.id}.result").write_text("")
            self._end(job, "Cancelled", "Ran too long", 1305)
            return
        try:
            result, executions = _run(job, (self.directory / f"{job.id}.params").read_text(), self.noise)
        except Exception:  # a job that cannot be run must not leave its client waiting
            (self.directory / f"{job.id}.result").write_text(traceback.format_exc())
            self._end(job, "Failed", f"the loopback service cannot run this: {traceback.format_exc()}")
            return
        with self.lock:
            if job.id not in self.jobs or job.state in ENDED:
                return
            path = self.directory / f"{job.id}.result"
            path.with_suffix(".part").write_text(result)
            path.with_suffix(".part").replace(path)
            job.executions, job.usage = executions, 0.5 + executions * 250e-6
            self._end(job, "Completed")

    def _end(self, job: Job, state: str, reason: str = "", code: int | None = None) -> None:
        job.state, job.reason, job.reason_code, job.finished = state, reason, code, _now()
        self._keep(job)

    def _keep(self, job: Job) -> None:
        path = self.directory / f"{job.id}.job"
        path.with_suffix(".new").write_text(json.dumps(asdict(job)))
        path.with_suffix(".new").replace(path)

    @property
    def seconds_used(self) -> float:
        return sum(job.usage for job in self.jobs.values())


# -- answers ----------------------------------------------------------------------------------------------------------


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed closes its connection at any time."""


class _Handler(BaseHTTPRequestHandler):
    service: Loopback
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # header and body are two packets: the second would wait 40 ms

    def log_message(self, format: str, *args: Any) -> None:
        """Silence."""

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def do_PATCH(self) -> None:
        self._answer("PATCH")

    def do_PUT(self) -> None:
        self._answer("PUT")

    def do_DELETE(self) -> None:
        self._answer("DELETE")

    def _answer(self, method: str) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        parts = urlsplit(self.path)
        name = f"{method} {parts.path.removeprefix(PREFIX)}"
        service = self.service
        with service.lock:
            service.requests.append(name)
            fault = next((fault for fault in service.faults if fault.strikes(name)), None)
        query = parse_qs(parts.query)
        done = self._reply(name, body, query) if fault is not None and fault.after else None
        if fault is not None:
            time.sleep(fault.delay)
            if fault.call is not None:
                fault.call()
            if fault.drop:
                self._drop()
                return
            if fault.status is not None:
                self._send(fault.status, fault.body, fault.headers)
                return
        if self.server is not service._server:  # stopped meanwhile, with this connection still open
            self._drop()
            return
        self._send(*(done or self._reply(name, body, query)))

    def _drop(self) -> None:
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True

    def _send(self, status: int, body: str | dict[str, Any] | None, headers: dict[str, str] | None = None) -> None:
        data = b"" if body is None else (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        for key, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _reply(self, name: str, body: str, query: dict[str, list[str]]) -> tuple[int, str | dict[str, Any] | None]:
        if not name.startswith(("POST /identity", "GET /catalog", "POST /v3")) and (
            self.headers.get("Authorization") != f"Bearer {_access_token()}"
        ):
            return 401, {"errors": [{"message": "refused", "code": 1200}]}
        for pattern, method in _ROUTES:
            match = re.fullmatch(pattern, name)
            if match:
                return method(self, body, query, *match.groups())
        return 404, {"errors": [{"message": f"no {name} here", "code": 1291}]}

    def _login(self, body: str, query: Any) -> tuple[int, Any]:
        if parse_qs(body).get("apikey") != [TOKEN]:
            return 400, {"errorCode": "BXNIM0415E", "errorMessage": "Provided API key could not be found."}
        now = int(time.time())
        return 200, {"access_token": _access_token(), "expires_in": 36000, "expiration": now + 36000}

    def _search(self, body: str, query: Any) -> tuple[int, Any]:
        item = {"crn": CRN, "name": "loopback", "service_plan_unique_id": "open", "tags": [], "doc": {"extensions": {}}}
        item["doc"] = {"extensions": {"allocation": 600}}
        return 200, {"items": [item], "limit": 100}

    def _plan(self, body: str, query: Any) -> tuple[int, Any]:
        return 200, {"overview_ui": {"en": {"display_name": "Open"}}, "metadata": {"pricing": {"type": "free"}}}

    def _backends(self, body: str, query: Any) -> tuple[int, Any]:
        online = {"name": "online" if self.service.status == "active" else "paused", "reason": ""}
        devices = [
            {"name": name, "status": online, "queue_length": index, "qubits": _files(fake)[0]["n_qubits"]}
            for index, (name, fake) in enumerate(DEVICES.items())
        ]
        return 200, {"devices": devices}

    def _configuration(self, body: str, query: Any, name: str) -> tuple[int, Any]:
        return 200, {**_files(DEVICES[name])[0], "backend_name": name, "simulator": False}

    def _properties(self, body: str, query: Any, name: str) -> tuple[int, Any]:
        return 200, {**_files(DEVICES[name])[1], "backend_name": name}

    def _status(self, body: str, query: Any, name: str) -> tuple[int, Any]:
        state = self.service.status
        return 200, {"state": state == "active", "status": state, "length_queue": 0, "backend_version": "1.0.0"}

    def _usage(self, body: str, query: Any) -> tuple[int, Any]:
        used, limit = self.service.seconds_used, self.service.seconds_limit
        return 200, {
            "usage_consumed_seconds": used,
            "usage_limit_seconds": limit,
            "usage_limit_reached": used >= limit,
        }

    def _run(self, body: str, query: Any) -> tuple[int, Any]:
        request = json.loads(body)
        if request["backend"] not in DEVICES:
            return 404, {"errors": [{"message": "backend not found", "code": 1007}]}
        session = self.service.sessions.get(request.get("session_id") or "")
        if session is not None and not session["accepting_jobs"]:
            return 400, {"errors": [{"message": "the session is closed", "code": 1217}]}
        job = self.service.submit(request, json.dumps(request["params"]))
        return 200, {"id": job.id, "backend": job.backend}

    def _list(self, body: str, query: dict[str, list[str]]) -> tuple[int, Any]:
        tags = set(query.get("tags", []))
        found = [job for job in self.service.jobs.values() if tags <= set(job.tags)]
        found.sort(key=lambda job: job.created, reverse=query.get("sort") != ["ASC"])
        start = int(query.get("offset", ["0"])[0])
        page = found[start : start + int(query.get("limit", ["10"])[0])]
        return 200, {"jobs": [_described(job) for job in page], "count": len(found)}

    def _job(self, body: str, query: Any, identifier: str) -> tuple[int, Any]:
        job = self.service.jobs.get(identifier)
        return (
            (404, {"errors": [{"message": "job not found", "code": 1291}]}) if job is None else (200, _described(job))
        )

    def _results(self, body: str, query: Any, identifier: str) -> tuple[int, Any]:
        return 200, self.service.result(self.service.jobs[identifier])

    def _metrics(self, body: str, query: Any, identifier: str) -> tuple[int, Any]:
        job = self.service.jobs[identifier]
        done = job.state in ENDED
        return 200, {
            "timestamps": {"created": job.created, "running": job.running, "finished": job.finished},
            "usage": {"status": "completed" if done else "pending", "qpu_charge_time_seconds": job.usage},
        }

    def _cancel(self, body: str, query: Any, identifier: str) -> tuple[int, Any]:
        if self.service.cancel(self.service.jobs[identifier]):
            return 204, None
        return 409, {"errors": [{"message": "job is in a final state", "code": 1295}]}

    def _open(self, body: str, query: Any) -> tuple[int, Any]:
        request = json.loads(body)
        identifier = "s" + secrets.token_hex(9)
        details = {
            "id": identifier,
            "backend_name": request["backend"],
            "mode": request["mode"],
            "max_ttl": request.get("max_ttl"),
            "state": "open",
            "accepting_jobs": True,
            "elapsed_time": 0,
        }
        self.service.sessions[identifier] = details
        return 200, details

    def _close(self, body: str, query: Any, identifier: str) -> tuple[int, Any]:
        self.service.sessions[identifier] |= {"accepting_jobs": False, "state": "closed"}
        return 204, None

    def _session(self, body: str, query: Any, identifier: str) -> tuple[int, Any]:
        return 200, self.service.sessions[identifier]


_ROUTES = [
    (r"POST /identity/token", _Handler._login),
    (r"POST /v3/resources/search", _Handler._search),
    (r"GET /catalog/[^/]+", _Handler._plan),
    (r"GET /backends", _Handler._backends),
    (r"GET /backends/([^/]+)/configuration", _Handler._configuration),
    (r"GET /backends/([^/]+)/properties", _Handler._properties),
    (r"GET /backends/([^/]+)/status", _Handler._status),
    (r"GET /instances/usage", _Handler._usage),
    (r"POST /jobs", _Handler._run),
    (r"GET /jobs", _Handler._list),
    (r"GET /jobs/([^/]+)", _Handler._job),
    (r"GET /jobs/([^/]+)/results", _Handler._results),
    (r"GET /jobs/([^/]+)/metrics", _Handler._metrics),
    (r"POST /jobs/([^/]+)/cancel", _Handler._cancel),
    (r"POST /sessions", _Handler._open),
    (r"PATCH /sessions/([^/]+)", _Handler._close),
    (r"DELETE /sessions/([^/]+)/close", _Handler._close),
    (r"GET /sessions/([^/]+)", _Handler._session),
]


def _described(job: Job) -> dict[str, Any]:
    state = {"status": job.state, "reason": job.reason or None, "reason_code": job.reason_code}
    return {
        "id": job.id,
        "backend": job.backend,
        "program": {"id": job.program},
        "state": {key: value for key, value in state.items() if value is not None},
        "status": job.state,
        "created": job.created,
        "tags": job.tags,
        "session_id": job.session,
    }


@cache
def _access_token() -> str:
    # Good until 2096, and after a restart of the service too.
    parts = [{"alg": "none"}, {"iat": 1_700_000_000, "exp": 4_000_000_000}, {}]
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)


def _now() -> str:
    # Microseconds, and never twice the same: the order of creation is the order of these texts.
    global _latest
    _latest = max(datetime.now(timezone.utc), _latest + timedelta(microseconds=1))
    return _latest.isoformat().replace("+00:00", "Z")


_latest = datetime.now(timezone.utc)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@cache
def _device(fake: str) -> Any:
    from qboltz.backends.fake import fake_devices

    return fake_devices()[fake]()


@cache
def _files(fake: str) -> tuple[dict[str, Any], dict[str, Any]]:
    from qboltz.backends.fake import fake_devices

    kind = fake_devices()[fake]
    folder = Path(kind.dirname)
    return tuple(json.loads((folder / name).read_text()) for name in (kind.conf_filename, kind.props_filename))


# -- circuits ---------------------------------------------------------------------------------------------------------


def _run(job: Job, params: str, noise: bool) -> tuple[str, int]:
    """The answer to a job as text, and how many circuits times shots it took."""
    run = {"executor": _run_executor, "sampler": _run_sampler}[job.program]
    return run(job, params, noise)


def _run_executor(job: Job, params: str, noise: bool) -> tuple[str, int]:
    from ibm_quantum_schemas.common import CompressedTensorModel
    from ibm_quantum_schemas.executor import version_2_0 as schema
    from qiskit_ibm_runtime.fake_provider.executor.broadcast_sample import broadcast_sample
    from qiskit_ibm_runtime.quantum_program.converters.converters_2_0 import quantum_program_from_2_0
    from samplomatic.quantum_program import CircuitItem

    model = schema.ParamsModel.model_validate_json(params)
    program, _ = quantum_program_from_2_0(model)
    shots = program.shots + (job.outcome == "wrong_shots")
    data, executions = [], 0
    for item in program.items:
        if isinstance(item, CircuitItem):
            angles, extra = item.circuit_arguments, {}
        else:
            rng = np.random.default_rng(_seed(params.encode()))
            item.samplex.finalize()
            extra = broadcast_sample(item.samplex, item.samplex_arguments, item.shape, rng)
            angles = extra.pop("parameter_values")
        angles = np.zeros((0,)) if angles is None else angles
        if job.outcome == "fewer_rows":
            angles = angles[..., :-1, :]
        bits = _sample(job.backend, item.circuit, angles, shots, noise)
        if job.outcome == "other_register":
            bits = {f"other_{name}": value for name, value in bits.items()}
        arrays = {**extra, **{name: value.to_bool_array(order="little") for name, value in bits.items()}}
        executions += int(np.prod(angles.shape[:-1])) * shots
        results = {name: CompressedTensorModel.from_numpy(value) for name, value in arrays.items()}
        data.append(schema.QuantumProgramResultItemModel(results=results, metadata=schema.ItemMetadataModel()))
    answer = schema.QuantumProgramResultModel(
        data=data,
        metadata=schema.MetadataModel(chunk_timing=[]),
        passthrough_data=model.quantum_program.passthrough_data,
        semantic_role=model.quantum_program.semantic_role,
    )
    return _spoiled(job, answer.model_dump_json()), executions


def _run_sampler(job: Job, params: str, noise: bool) -> tuple[str, int]:
    from qiskit.primitives import DataBin, PrimitiveResult, SamplerPubResult
    from qiskit.primitives.containers.sampler_pub import SamplerPub
    from qiskit_ibm_runtime import RuntimeDecoder, RuntimeEncoder

    pubs = [SamplerPub.coerce(tuple(pub)) for pub in json.loads(params, cls=RuntimeDecoder)["pubs"]]
    results, executions = [], 0
    for pub in pubs:
        angles = pub.parameter_values.as_array(pub.circuit.parameters)
        if job.outcome == "fewer_rows":
            angles = angles[..., :-1, :]
        shots = pub.shots + (job.outcome == "wrong_shots")
        bits = _sample(job.backend, pub.circuit, angles, shots, noise)
        if job.outcome == "other_register":
            bits = {f"other_{name}": value for name, value in bits.items()}
        executions += int(np.prod(angles.shape[:-1])) * shots
        results.append(SamplerPubResult(DataBin(**bits, shape=angles.shape[:-1])))
    return _spoiled(job, json.dumps(PrimitiveResult(results), cls=RuntimeEncoder)), executions


def _spoiled(job: Job, text: str) -> str:
    return {
        "truncated": text[: len(text) // 2],
        "malformed": '{"schema_version": "v2.0", "data": [{"results": 7}]}',
        "empty": "",
    }.get(job.outcome, text)


def _seed(data: bytes) -> int:
    return int.from_bytes(hashlib.sha256(data).digest()[:7], "little")


def _sample(backend: str, circuit: Any, angles: np.ndarray, shots: int, noise: bool) -> dict[str, Any]:
    """Bits by register; the same for the same angles and shots."""
    from qiskit.primitives import BindingsArray
    from qiskit.primitives.containers.sampler_pub import SamplerPub

    from qboltz.machine.chip import ChipSampler

    bindings = BindingsArray({tuple(circuit.parameters): angles}) if circuit.num_parameters else None
    seed = _seed(np.ascontiguousarray(angles).tobytes() + shots.to_bytes(8, "little"))
    sampler = ChipSampler(_device(DEVICES[backend]), seed=seed, noise=noise)
    pub = SamplerPub.coerce((circuit, bindings), shots)
    work = [(pub, sampler.parts(circuit), sampler.seeds.next())]
    return dict(sampler._run(work)[0].data.items())  # run() would start a thread


# -- a process of its own ---------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0, help="on 127.0.0.1 (any free one)")
    parser.add_argument("--directory", type=Path, required=True, help="where jobs and results are kept")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds that a job takes (0)")
    parser.add_argument("--noise", action="store_true", help="with the noise of the fake device")
    parser.add_argument("--fresh", action="store_true", help="forget the jobs that are there")
    parser.add_argument("--outcomes", nargs="*", default=[], help="what becomes of the first jobs")
    parser.add_argument("--fault", action="append", default=[], help="JSON of a Fault, may be repeated")
    args = parser.parse_args()
    if args.fresh:
        shutil.rmtree(args.directory, ignore_errors=True)
    with Loopback(args.directory, args.port, delay=args.delay, noise=args.noise) as service:
        service.outcomes = args.outcomes
        service.faults = [Fault(**json.loads(text)) for text in args.fault]
        for name, value in service.environment().items():
            print(f"export {name}='{value}'")
        print("", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
