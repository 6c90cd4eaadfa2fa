"""Recorded traces of any tracer, read from files as one OTLP request per trace.

Files are Jaeger JSON (`{"data": [...]}`) or OTLP JSON, gzipped or not. OTLP JSON is one object, or
one object per line as the collector's file exporter writes it. Spans of one trace may be in several
files, for example one per cluster. They are joined by trace id.
"""

import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from spillway_streams import StreamsError
from spillway_streams.recorded import jaeger, otlp
from spillway_streams.recorded.clusters import Clusters, TraceFileError

_GZIP = b"\x1f\x8b"
Traces = dict[bytes, ExportTraceServiceRequest]


def read(files: Iterable[Path], clusters: Clusters, report: Callable[[str], None]) -> Traces:
    """Returns every trace of the files by its id. Raises TraceFileError.

    `report`: called with a line about each file.
    """
    traces: Traces = {}
    for path in files:
        before = len(traces)
        for trace_id, request in _requests(path, clusters):
            traces.setdefault(trace_id, ExportTraceServiceRequest()).MergeFrom(request)
        report(f"{path}: {len(traces) - before} traces")
    return traces


def _requests(path: Path, clusters: Clusters) -> Iterator[tuple[bytes, ExportTraceServiceRequest]]:
    for line, document in documents(path):
        where = f"{path}:{line}" if line else str(path)
        if isinstance(document, dict) and "result" in document:
            document = document["result"]  # as in Jaeger's query API v3
        if isinstance(document, dict) and "data" in document:
            yield from _of_jaeger(where, document["data"], clusters)
        elif isinstance(document, dict) and ("resourceSpans" in document or "resource_spans" in document):
            yield from otlp.traces(where, document, clusters)
        else:
            raise TraceFileError(
                f"{where}: neither Jaeger JSON (an object with 'data') nor OTLP JSON (with 'resourceSpans')"
            )


def documents(path: Path) -> Iterator[tuple[int, Any]]:
    """Yields (line, value) of the JSON values in a file.

    If the file has one object per line, its lines count from 1. Any other file is one value, with
    line 0. Raises TraceFileError.
    """
    try:
        with _opened(path) as file:
            first = file.readline()
            if _is_json(first):
                yield 1 if file.peek(1) else 0, json.loads(first)
                for number, line in enumerate(file, 2):
                    if line.strip():
                        yield number, _loads(path, number, line)
            else:
                yield 0, _loads(path, 1, first + file.read())
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise TraceFileError(f"{path}: cannot be read: {error}") from error


def _opened(path: Path) -> io.BufferedReader:
    file = path.open("rb")
    packed = file.peek(2)[:2] == _GZIP
    return io.BufferedReader(gzip.GzipFile(fileobj=file)) if packed else file


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _loads(path: Path, line: int, text: bytes) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        where = f"{path}:{line + error.lineno - 1}:{error.colno}"
        raise TraceFileError(f"{where}: not JSON: {error.msg}") from error
    except RecursionError as error:
        raise TraceFileError(f"{path}:{line}: nested too deep to be traces") from error


def _of_jaeger(
    where: str, traces: Any, clusters: Clusters
) -> Iterator[tuple[bytes, ExportTraceServiceRequest]]:
    if not isinstance(traces, list):
        raise TraceFileError(f"{where}: data: {type(traces).__name__}, must be a list of traces")
    for n, trace in enumerate(traces):
        at = f"{where}: data[{n}]"
        if not isinstance(trace, dict):
            raise TraceFileError(f"{at}: {type(trace).__name__}, must be an object")
        if trace.get("spans") in (None, []):
            continue
        _check_jaeger(at, trace)

        def cluster_of(process: dict, span: dict, at: str = at) -> str:
            return clusters.of(f"{at}, span {span['spanID']}", _tags(process), _tags(span))

        try:
            request = jaeger.convert(trace, cluster_of)
            yield bytes.fromhex(trace["spans"][0]["traceID"].zfill(32)), request
        except TraceFileError:
            raise
        except (StreamsError, ValueError) as error:
            raise TraceFileError(f"{at}: {error}") from error


def _tags(holder: Mapping[str, Any]) -> dict[str, Any]:
    return {tag["key"]: tag["value"] for tag in holder.get("tags") or ()}


_SPAN = {
    "traceID": str, "spanID": str, "operationName": str, "startTime": int, "duration": int, "tags": list,
    "processID": str,
}  # fmt: skip
_REFERENCE = {"refType": str, "spanID": str}


def _check_jaeger(at: str, trace: dict[str, Any]) -> None:
    """Raises TraceFileError for the first key that is missing or has another type."""
    processes = _of_type(at, "processes", trace.get("processes"), dict)
    for name, process in processes.items():
        key = f"processes[{name!r}]"
        _check_tags(f"{at}.{key}", _of_type(at, key, process, dict))
    for m, span in enumerate(_of_type(at, "spans", trace["spans"], list)):
        here = f"{at}.spans[{m}]"
        _check_object(here, span, _SPAN)
        _check_tags(here, span)
        for n, reference in enumerate(_of_type(here, "references", span.get("references", []), list)):
            _check_object(f"{here}.references[{n}]", reference, _REFERENCE)
        if "serviceName" not in processes.get(span["processID"], {}):
            raise TraceFileError(f"{at}.processes[{span['processID']!r}].serviceName: missing")


def _check_tags(at: str, holder: dict[str, Any]) -> None:
    for n, tag in enumerate(_of_type(at, "tags", holder.get("tags") or [], list)):
        here = f"{at}.tags[{n}]"
        _check_object(here, tag, {"key": str})
        if "value" not in tag:
            raise TraceFileError(f"{here}.value: missing, of tag {tag['key']!r}")


def _check_object(at: str, value: Any, keys: Mapping[str, type]) -> None:
    if not isinstance(value, dict):
        raise TraceFileError(f"{at}: {_found(value)}, must be an object")
    for key, kind in keys.items():
        if not isinstance(value.get(key), kind):
            found = "missing" if key not in value else _found(value[key])
            raise TraceFileError(f"{at}.{key}: {found}, must be {_NAMES[kind]}")


def _of_type(at: str, key: str, value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise TraceFileError(f"{at}.{key}: {_found(value)}, must be {_NAMES[kind]}")
    return value


_NAMES = {str: "a text", int: "a whole number", list: "a list", dict: "an object"}


def _found(value: Any) -> str:
    """Returns the value as JSON, shortened to about 40 characters."""
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
