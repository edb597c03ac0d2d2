"""Sends the spans of runs to an OpenTelemetry collector (OTLP over HTTP), where the environment names one.

Rule: nothing that happens here reaches a run: it waits for no network, what cannot be sent is dropped and said once,
and leaving takes two seconds at most. The only place that knows OpenTelemetry; the environment's own names are used
(`OTEL_EXPORTER_OTLP_ENDPOINT` and the rest), and what the exporter itself reads of them, it reads.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from loopwright.core.events import Event
from loopwright.journal import Journal
from loopwright.ports import Follow
from loopwright.serving import semconv as sc
from loopwright.serving.spans import Span, Spans

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

CONTENT: Final = "LOOPWRIGHT_TELEMETRY_CONTENT"
LEAVING_S: Final = 2.0
_YES: Final = frozenset({"1", "true", "yes", "on"})
_BEGIN: Final = datetime(1970, 1, 1, tzinfo=UTC)
_INSTALL: Final = "pip install 'loopwright[otel]'"


def with_content(environ: Mapping[str, str]) -> bool:
    """Whether telemetry may hold what people, agents and gates said."""
    return environ.get(CONTENT, "").strip().lower() in _YES


def observer(environ: Mapping[str, str], *, tell: Callable[[str], None] = lambda _: None) -> Tracing | None:
    """What sends the spans of each run that it is told to `follow`; `None` where the environment names no collector.

    `tell` gets a line when spans cannot be sent. `close` it at the end.
    """
    where = _endpoint(environ)
    if where is None:
        return None
    protocol = environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    if protocol not in {None, "", "http/protobuf"}:
        tell(f"traces are not sent: loopwright speaks OTLP as http/protobuf, not {protocol[:40]}")
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        tell(f"traces are not sent: {error.name} is not installed; {_INSTALL}")
        return None
    logging.getLogger("opentelemetry").addHandler(logging.NullHandler())  # we say it, once
    try:
        exporter: Any = _Said(OTLPSpanExporter(endpoint=where), where, tell)
        resource = Resource.create({"service.name": environ.get("OTEL_SERVICE_NAME") or "loopwright"})
        return Tracing(BatchSpanProcessor(exporter), resource, tell, content=with_content(environ))
    except Exception as error:  # noqa: BLE001 - settings that it cannot read
        tell(f"traces are not sent: {type(error).__name__}: {error}")
        return None


class Tracing:
    """The way to a collector."""

    def __init__(
        self,
        out: BatchSpanProcessor,
        resource: Resource,
        tell: Callable[[str], None] = lambda _: None,
        *,
        content: bool = False,
    ) -> None:
        self._out = out
        self._resource = resource
        self._tell = tell
        self._content = content

    def follow(self, journal: Journal) -> Follow:
        """What follows this run (`Ways.follow`); it raises nothing."""
        spans: Spans | None = None
        try:
            spans = Spans(journal, self._emit, content=self._content)
        except Exception as error:  # noqa: BLE001 - a run must not end of its telemetry
            self._missing(journal.run, error)

        def follow(at: datetime, event: Event) -> None:
            nonlocal spans
            if spans is None:
                return
            try:
                spans.follow(at, event)
            except Exception as error:  # noqa: BLE001 - the same
                spans = None
                self._missing(journal.run, error)

        return follow

    def _missing(self, run: str, error: Exception) -> None:
        self._tell(f"spans of run {run} are missing: {type(error).__name__}: {str(error)[:200]}")

    def _emit(self, span: Span) -> None:
        self._out.on_end(_readable(span, self._resource))

    def close(self) -> None:
        """Sends what is left, for two seconds at most."""
        leaving = threading.Thread(target=self._out.shutdown, name="loopwright traces", daemon=True)
        leaving.start()
        leaving.join(LEAVING_S)


@dataclass(slots=True)
class _Said:
    """An exporter whose first failure is said."""

    exporter: Any
    where: str
    tell: Callable[[str], None]
    told: bool = False

    def export(self, spans: Any) -> Any:
        found = self.exporter.export(spans)
        if found.name != "SUCCESS" and not self.told:
            self.told = True
            host = urlsplit(self.where)
            self.tell(f"traces cannot be sent to {host.hostname}:{host.port or host.scheme}; the runs go on")
        return found

    def shutdown(self) -> None:
        self.exporter.shutdown()


def _endpoint(environ: Mapping[str, str]) -> str | None:
    """Where traces go, by the standard names; `None` where none is said, or it is switched off."""
    off = environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if off or environ.get("OTEL_TRACES_EXPORTER", "").strip() not in {"", "otlp"}:
        return None
    if own := environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        return own
    shared = environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    return f"{shared.rstrip('/')}/v1/traces" if shared else None


def _nanoseconds(at: datetime) -> int:
    return (at - _BEGIN) // timedelta(microseconds=1) * 1000


def _readable(span: Span, resource: Resource) -> ReadableSpan:
    """The span as the exporter takes it: none of its own making, because its ids and times are of the record."""
    from opentelemetry.sdk.trace import Event as Happened
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

    from loopwright import __version__

    def named(id_: str) -> SpanContext:
        sampled = TraceFlags(TraceFlags.SAMPLED)
        return SpanContext(int(span.trace, 16), int(id_, 16), is_remote=False, trace_flags=sampled)

    return ReadableSpan(
        name=span.name,
        context=named(span.id),
        parent=None if span.parent is None else named(span.parent),
        resource=resource,
        attributes=span.attributes,
        events=[Happened(e.name, e.attributes, _nanoseconds(e.at)) for e in span.events],
        kind=SpanKind.INTERNAL,
        status=Status(StatusCode.UNSET) if span.error is None else Status(StatusCode.ERROR),
        start_time=_nanoseconds(span.began),
        end_time=_nanoseconds(span.ended),
        instrumentation_scope=InstrumentationScope(sc.SCOPE, __version__),
    )
