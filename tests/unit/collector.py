"""A stand-in for an OpenTelemetry collector: takes OTLP over HTTP, decodes it, keeps the spans."""

import contextlib
import queue
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    """What came: `spans`, oldest first; `arrived` gets the names of each batch. `answer` is the status it gives."""

    def __init__(self, answer=200, hold=None):
        self.spans = []
        self.resources = []
        self.bodies = []
        self.arrived = queue.Queue()
        self.answer = answer
        self.hold = hold
        self.url = ""

    def took(self, path, body):
        assert path == "/v1/traces"
        self.bodies.append(body)
        asked = ExportTraceServiceRequest.FromString(body)
        found = []
        for resource in asked.resource_spans:
            self.resources.append(values(resource.resource.attributes))
            found += [span for scope in resource.scope_spans for span in scope.spans]
        self.spans += found
        self.arrived.put([span.name for span in found])

    def named(self, name):
        return [span for span in self.spans if span.name == name]

    def one(self, name):
        (found,) = self.named(name)
        return found


def values(attributes):
    kinds = ("string_value", "bool_value", "int_value", "double_value")
    return {a.key: next(getattr(a.value, k) for k in kinds if a.value.HasField(k)) for a in attributes}


@contextlib.contextmanager
def collecting(**more):
    made = Collector(**more)

    class Taken(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if made.hold is not None:
                made.hold.wait(30)
            made.took(self.path, body)
            self.send_response(made.answer)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Taken)
    server.daemon_threads = True
    made.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
