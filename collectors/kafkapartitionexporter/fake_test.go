package kafkapartitionexporter

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"spillway.dev/collectors/kafkapartitionexporter/internal/metadata"
	"spillway.dev/collectors/kafkapartitionexporter/internal/pack"
)

// fake is a Kafka that gives the configured answers and keeps the messages that it accepted.
type fake struct {
	answer func(pack.Message) error
	taken  []pack.Message
	count  int
	away   error
	closed func()
}

func (f *fake) partitions(context.Context) (int, error) { return f.count, f.away }

func (f *fake) produce(_ context.Context, messages []pack.Message) []error {
	outcomes := make([]error, len(messages))
	for i, message := range messages {
		if f.answer != nil {
			outcomes[i] = f.answer(message)
		}
		if outcomes[i] == nil {
			f.taken = append(f.taken, message)
		}
	}
	return outcomes
}

func (f *fake) close() {
	if f.closed != nil {
		f.closed()
	}
}

// names returns the sorted names of the accepted spans.
func (f *fake) names(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, message := range f.taken {
		batch, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(message.Value)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, spanNames(batch)...)
	}
	slices.Sort(found)
	return found
}

func spanNames(batch ptrace.Traces) []string {
	var found []string
	for _, resource := range batch.ResourceSpans().All() {
		for _, scope := range resource.ScopeSpans().All() {
			for _, span := range scope.Spans().All() {
				found = append(found, span.Name())
			}
		}
	}
	slices.Sort(found)
	return found
}

// spans returns one span for each name. Spans of equal names belong to one trace.
func spans(names ...string) ptrace.Traces {
	batch := ptrace.NewTraces()
	list := batch.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	for _, name := range names {
		span := list.AppendEmpty()
		span.SetName(name)
		span.SetTraceID(pcommon.TraceID([]byte((name + strings.Repeat(" ", 16))[:16])))
	}
	return batch
}

func testSender(t *testing.T, kafka *fake, limit int) (*sender, *componenttest.Telemetry) {
	t.Helper()
	telemetry := componenttest.NewTelemetry()
	t.Cleanup(func() { _ = telemetry.Shutdown(context.Background()) })
	settings := exportertest.NewNopSettings(metadata.Type)
	settings.TelemetrySettings = telemetry.NewTelemetrySettings()
	config := createDefaultConfig().(*Config)
	config.MaxMessageBytes = limit + recordBatchBytes
	s, err := newSender(config, "otlp_spans", pack.Traces, settings)
	if err != nil {
		t.Fatal(err)
	}
	s.producer = kafka
	return s, telemetry
}

// silent never answers until it is closed.
type silent struct{ closed chan struct{} }

func (s *silent) partitions(context.Context) (int, error) { return 1, nil }
func (s *silent) close()                                  { close(s.closed) }
func (s *silent) produce(_ context.Context, messages []pack.Message) []error {
	<-s.closed
	return slices.Repeat([]error{kgo.ErrClientClosed}, len(messages))
}
