package pack

import (
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

func encodeTraces(t testing.TB, batch ptrace.Traces) []byte {
	t.Helper()
	request, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(batch)
	if err != nil {
		t.Fatal(err)
	}
	return request
}

func packTraces(t testing.TB, batch ptrace.Traces, partitions int, limits Limits) Packed {
	t.Helper()
	packed, err := Traces.Request(encodeTraces(t, batch), partitions, limits)
	if err != nil {
		t.Fatal(err)
	}
	return packed
}

func decodeTraces(t testing.TB, message Message) ptrace.Traces {
	t.Helper()
	batch, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(message.Value)
	if err != nil {
		t.Fatalf("a message does not decode: %v", err)
	}
	return batch
}

// eachSpan visits every span as a request of its own, with its resource and scope.
func eachSpan(batch ptrace.Traces, visit func(single ptrace.Traces, span ptrace.Span)) {
	for _, resource := range batch.ResourceSpans().All() {
		for _, scope := range resource.ScopeSpans().All() {
			for _, span := range scope.Spans().All() {
				single := ptrace.NewTraces()
				to := single.ResourceSpans().AppendEmpty()
				resource.Resource().CopyTo(to.Resource())
				to.SetSchemaUrl(resource.SchemaUrl())
				into := to.ScopeSpans().AppendEmpty()
				scope.Scope().CopyTo(into.Scope())
				into.SetSchemaUrl(scope.SchemaUrl())
				span.CopyTo(into.Spans().AppendEmpty())
				visit(single, span)
			}
		}
	}
}

// multiset counts every span, with its resource and scope, by its encoding.
func multiset(t testing.TB, batches ...ptrace.Traces) map[string]int {
	found := make(map[string]int)
	for _, batch := range batches {
		eachSpan(batch, func(single ptrace.Traces, _ ptrace.Span) { found[string(encodeTraces(t, single))]++ })
	}
	return found
}

// TestNoSpanIsLostOrDoubled checks that the messages hold exactly the batch's spans, each with its
// own resource and scope.
func TestNoSpanIsLostOrDoubled(t *testing.T) {
	seeds(t, func(t *testing.T, r *rand.Rand) {
		batch := anyTraces(r)
		packed := packTraces(t, batch, 1+r.IntN(8), Limits{Target: 200 + r.IntN(20_000), Hard: 50_000})
		var parts []ptrace.Traces
		items := packed.TooLarge
		for _, message := range packed.Messages {
			parts = append(parts, decodeTraces(t, message))
			items += message.Items
		}
		if !maps.Equal(multiset(t, batch), multiset(t, parts...)) {
			t.Error("the spans of the messages are not those of the batch")
		}
		if items != batch.SpanCount() {
			t.Errorf("messages and drops count %d spans, the batch has %d", items, batch.SpanCount())
		}
	})
}

// TestMessagesStayWithinTheLimits checks that no message exceeds the hard limit, and that only a
// message with a single span exceeds the target. A dropped span could not have been sent.
func TestMessagesStayWithinTheLimits(t *testing.T) {
	seeds(t, func(t *testing.T, r *rand.Rand) {
		limits := Limits{Target: 200 + r.IntN(2000)}
		limits.Hard = limits.Target + r.IntN(3000)
		batch := anyTraces(r)
		packed := packTraces(t, batch, 1+r.IntN(4), limits)
		for _, message := range packed.Messages {
			if size := len(message.Value); size > limits.Hard || (size > limits.Target && message.Items > 1) {
				t.Errorf("%d bytes with %d spans, limits %+v", size, message.Items, limits)
			}
		}
		sendable := 0
		eachSpan(batch, func(single ptrace.Traces, _ ptrace.Span) {
			if len(encodeTraces(t, single))+nesting <= limits.Hard {
				sendable++
			}
		})
		if batch.SpanCount()-packed.TooLarge < sendable {
			t.Errorf("%d of %d spans dropped, %d could be sent", packed.TooLarge, batch.SpanCount(), sendable)
		}
	})
}

// TestATraceIsInOnePartition checks that a trace is in one partition, whatever the batch and
// whatever is split.
func TestATraceIsInOnePartition(t *testing.T) {
	seeds(t, func(t *testing.T, r *rand.Rand) {
		partitions := 1 + r.IntN(8)
		where := make(map[pcommon.TraceID]int32)
		for range 3 {
			packed := packTraces(t, anyTraces(r), partitions, Limits{Target: 300, Hard: 50_000})
			used := make(map[int32]bool)
			for _, message := range packed.Messages {
				used[message.Partition] = true
				eachSpan(decodeTraces(t, message), func(_ ptrace.Traces, span ptrace.Span) {
					if before, seen := where[span.TraceID()]; seen && before != message.Partition {
						t.Errorf("trace %s is in partitions %d and %d", span.TraceID(), before, message.Partition)
					}
					where[span.TraceID()] = message.Partition
				})
			}
			if packed.Splits != len(packed.Messages)-len(used) {
				t.Errorf("%d splits, %d messages, %d partitions", packed.Splits, len(packed.Messages), len(used))
			}
		}
	})
}

// TestPartitionIsStable checks fixed values. They must never change, because collectors of other
// clusters and versions compute them too.
func TestPartitionIsStable(t *testing.T) {
	for key, partitions := range map[string][3]int{
		"": {1, 3, 1}, "0123456789abcdef": {3, 1, 15}, "fedcba9876543210": {2, 4, 6},
	} {
		for i, among := range []int{4, 6, 20} {
			if got := Partition([]byte(key), among); got != partitions[i] {
				t.Errorf("Partition(%q, %d) is %d, want %d", key, among, got, partitions[i])
			}
		}
	}
}

// TestPartitionsAreEven checks that consecutive trace ids are spread evenly.
func TestPartitionsAreEven(t *testing.T) {
	used := make([]int, 12)
	for n := range 12_000 {
		used[Partition([]byte{8: byte(n >> 16), 14: byte(n >> 8), 15: byte(n)}, len(used))]++
	}
	for partition, count := range used {
		if count < 800 || count > 1200 {
			t.Errorf("partition %d has %d of 12000 traces", partition, count)
		}
	}
}

// TestOneMessagePerPartition checks that a batch merged from many senders' requests becomes one
// message for each partition, in which equal resources appear once.
func TestOneMessagePerPartition(t *testing.T) {
	batch := ptrace.NewTraces()
	for n := range 100 {
		resource := batch.ResourceSpans().AppendEmpty()
		resource.Resource().Attributes().PutStr("service.name", "frontend")
		resource.ScopeSpans().AppendEmpty().Spans().AppendEmpty().SetTraceID(pcommon.TraceID{byte(n)})
	}
	packed := packTraces(t, batch, 4, Limits{Target: 1 << 20, Hard: 1 << 20})
	if len(packed.Messages) != 4 || packed.Splits != 0 {
		t.Fatalf("%d messages, %d splits", len(packed.Messages), packed.Splits)
	}
	for _, message := range packed.Messages {
		if resources := decodeTraces(t, message).ResourceSpans().Len(); resources != 1 {
			t.Errorf("%d resources in one message", resources)
		}
	}
}

// TestTooLargeSpanIsSetAside checks that the neighbours of a span that is too large are sent.
func TestTooLargeSpanIsSetAside(t *testing.T) {
	batch := ptrace.NewTraces()
	spans := batch.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	for _, name := range []string{"a", strings.Repeat("b", 1000), "c"} {
		spans.AppendEmpty().SetName(name)
	}
	packed := packTraces(t, batch, 1, Limits{Target: 500, Hard: 500})
	if packed.TooLarge != 1 || len(packed.Messages) != 1 || packed.Messages[0].Items != 2 {
		t.Errorf("%+v", packed)
	}
}

// FuzzRequest checks, for any bytes, that packing ends with an error or with messages that can be
// decoded.
func FuzzRequest(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 1))
	f.Add(encodeTraces(f, anyTraces(r)), 100)
	f.Add(encodeMetrics(f, anyMetrics(r)), 1000)
	f.Add([]byte{0x0a, 0xff}, 10)
	f.Fuzz(func(t *testing.T, request []byte, target int) {
		for _, signal := range []Signal{Traces, Metrics} {
			packed, err := signal.Request(request, 3, Limits{Target: target, Hard: 10_000})
			if err != nil {
				continue
			}
			for _, message := range packed.Messages {
				if _, _, err := part(message.Value, fieldResources); err != nil || len(message.Value) > 10_000 {
					t.Errorf("%d bytes: %v", len(message.Value), err)
				}
			}
		}
	})
}
