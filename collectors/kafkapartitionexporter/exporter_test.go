package kafkapartitionexporter

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"spillway.dev/collectors/kafkapartitionexporter/internal/pack"
)

// TestOnlyTheFailedPartIsRetried checks that the error carries the spans of the failed partition,
// and that pushing those completes the batch without duplicates.
func TestOnlyTheFailedPartIsRetried(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	kafka := &fake{count: 4}
	s, telemetry := testSender(t, kafka, 10_000)
	kafka.answer = func(message pack.Message) error {
		if message.Partition == 1 {
			return kerr.NotLeaderForPartition
		}
		return nil
	}
	err := s.pushTraces(context.Background(), spans(names...))
	var partial consumererror.Traces
	if !errors.As(err, &partial) || consumererror.IsPermanent(err) || !errors.Is(err, kerr.NotLeaderForPartition) {
		t.Fatalf("%v", err)
	}
	left := spanNames(partial.Data())
	if len(left) == 0 || len(left)+len(kafka.names(t)) != len(names) {
		t.Fatalf("left %v, taken %v", left, kafka.names(t))
	}
	kafka.answer = nil
	if err := s.pushTraces(context.Background(), partial.Data()); err != nil || !slices.Equal(kafka.names(t), names) {
		t.Errorf("%v: %v", err, kafka.names(t))
	}
	expect(t, telemetry, map[string]int64{
		"otelcol_exporter_kafka_partition_items":                                    8,
		"otelcol_exporter_kafka_partition_failed_messages NOT_LEADER_FOR_PARTITION": 1,
		"otelcol_exporter_kafka_partition_messages":                                 int64(len(kafka.taken)),
	})
}

// TestNothingIsGivenUpForWhatAnOperatorCanRepair checks that a missing permission, an unknown topic
// or an absent broker keeps the whole batch for the next attempt.
func TestNothingIsGivenUpForWhatAnOperatorCanRepair(t *testing.T) {
	for _, cause := range []error{
		kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed, kerr.SaslAuthenticationFailed,
		kerr.UnknownTopicOrPartition, kerr.InvalidTopicException, kgo.ErrClientClosed, context.DeadlineExceeded,
	} {
		s, _ := testSender(t, &fake{count: 2, answer: func(pack.Message) error { return cause }}, 10_000)
		err := s.pushTraces(context.Background(), spans("a", "b", "c"))
		var partial consumererror.Traces
		if !errors.Is(err, cause) || consumererror.IsPermanent(err) || errors.As(err, &partial) {
			t.Errorf("%v: %v", cause, err)
		}
	}
	s, _ := testSender(t, &fake{away: errors.New("no broker")}, 10_000)
	if err := s.pushTraces(context.Background(), spans("a")); err == nil || consumererror.IsPermanent(err) {
		t.Errorf("%v", err)
	}
}

// TestAMessageThatTheBrokerFindsTooLargeIsSplit checks a broker whose limit is below ours. It gets
// smaller messages on the following attempts, until everything is written except the span that
// exceeds its limit alone. That span is counted.
func TestAMessageThatTheBrokerFindsTooLargeIsSplit(t *testing.T) {
	const brokersLimit = 6000
	huge := "z" + strings.Repeat("z", brokersLimit)
	var names []string
	for n := range 200 {
		names = append(names, strings.Repeat(string(rune('a'+n%26)), 100+n))
	}
	slices.Sort(names)
	kafka := &fake{count: 2, answer: func(message pack.Message) error {
		if len(message.Value) > brokersLimit {
			return kerr.MessageTooLarge
		}
		return nil
	}}
	s, telemetry := testSender(t, kafka, 100_000)
	batch := spans(append([]string{huge}, names...)...)
	attempts := 0
	for ; attempts < 20; attempts++ {
		err := s.pushTraces(context.Background(), batch)
		if err == nil {
			break
		}
		var partial consumererror.Traces
		if errors.As(err, &partial) {
			batch = partial.Data()
		}
	}
	if got := kafka.names(t); !slices.Equal(got, names) {
		t.Fatalf("%d of %d spans after %d attempts", len(got), len(names), attempts)
	}
	expect(t, telemetry, map[string]int64{
		"otelcol_exporter_kafka_partition_items":                        200,
		"otelcol_exporter_kafka_partition_dropped_items " + dropRefused: 1,
	})
	if err := s.pushTraces(context.Background(), spans(names...)); err != nil {
		t.Errorf("the next batch is still too large: %v", err)
	}
}

// TestASpanAboveTheLimitDoesNotBlockTheQueue checks that such a span is dropped and counted once
// and that its neighbours are written, also when Kafka was away at the first attempt.
func TestASpanAboveTheLimitDoesNotBlockTheQueue(t *testing.T) {
	kafka := &fake{count: 1, answer: func(pack.Message) error { return kerr.NotEnoughReplicas }}
	s, telemetry := testSender(t, kafka, 5000)
	err := s.pushTraces(context.Background(), spans("a", strings.Repeat("b", 6000), "c"))
	var partial consumererror.Traces
	if !errors.As(err, &partial) {
		t.Fatalf("%v", err)
	}
	kafka.answer = nil
	if err := s.pushTraces(context.Background(), partial.Data()); err != nil {
		t.Fatal(err)
	}
	if got := kafka.names(t); !slices.Equal(got, []string{"a", "c"}) {
		t.Errorf("%v", got)
	}
	expect(t, telemetry, map[string]int64{"otelcol_exporter_kafka_partition_dropped_items " + dropTooLarge: 1})
}

// TestOnlyTheFailedPartOfMetricsIsRetried checks the same for metrics as for spans.
func TestOnlyTheFailedPartOfMetricsIsRetried(t *testing.T) {
	batch := pmetric.NewMetrics()
	for _, service := range []string{"a", "b", "c", "d", "e", "f"} {
		resource := batch.ResourceMetrics().AppendEmpty()
		resource.Resource().Attributes().PutStr("service.name", service)
		resource.ScopeMetrics().AppendEmpty().Metrics().AppendEmpty().SetEmptyGauge().DataPoints().AppendEmpty()
	}
	failing := true
	kafka := &fake{count: 3, answer: func(message pack.Message) error {
		if failing && message.Partition == 0 {
			return kerr.NotEnoughReplicas
		}
		return nil
	}}
	s, _ := testSender(t, kafka, 10_000)
	s.signal = pack.Metrics
	var partial consumererror.Metrics
	if err := s.pushMetrics(context.Background(), batch); !errors.As(err, &partial) {
		t.Fatalf("%v", err)
	}
	failing = false
	if err := s.pushMetrics(context.Background(), partial.Data()); err != nil {
		t.Fatal(err)
	}
	points := 0
	for _, message := range kafka.taken {
		points += message.Items
	}
	if points != 6 {
		t.Errorf("%d data points were written", points)
	}
}

// TestAShutdownDoesNotWaitForAnAnswerThatNeverComes checks that writes in flight fail after the
// timeout.
func TestAShutdownDoesNotWaitForAnAnswerThatNeverComes(t *testing.T) {
	config := createDefaultConfig().(*Config)
	config.Brokers = []string{"127.0.0.1:1"}
	config.TLS = insecure()
	config.TimeoutSettings.Timeout = 50 * time.Millisecond
	config.QueueBatchConfig = configoptional.None[exporterhelper.QueueBatchConfig]()
	silent := &silent{closed: make(chan struct{})}
	s, _ := testSender(t, &fake{}, 1000)
	s.config, s.producer = config, silent
	done := make(chan error)
	go func() { done <- s.pushTraces(context.Background(), spans("a")) }()
	defer s.hurry()()
	if err := <-done; !errors.Is(err, kgo.ErrClientClosed) {
		t.Errorf("%v", err)
	}
}

// TestAMetricThatTheBrokerFindsTooLargeIsCut checks the same as for spans, although all data points
// belong to one metric.
func TestAMetricThatTheBrokerFindsTooLargeIsCut(t *testing.T) {
	const brokersLimit, small = 6000, 500
	batch := pmetric.NewMetrics()
	metric := batch.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	points := metric.SetEmptyGauge().DataPoints()
	points.AppendEmpty().Attributes().PutStr("k", strings.Repeat("z", brokersLimit))
	for n := range small {
		points.AppendEmpty().SetIntValue(int64(n))
	}
	for _, limit := range []int{brokersLimit, minTarget / 2} { // with the second, even the smallest messages are refused
		kafka := &fake{count: 1, answer: func(message pack.Message) error {
			if len(message.Value) > limit {
				return kerr.MessageTooLarge
			}
			return nil
		}}
		s, telemetry := testSender(t, kafka, 100_000)
		s.signal = pack.Metrics
		left, attempts := batch, 0
		for ; attempts < 20; attempts++ {
			err := s.pushMetrics(context.Background(), left)
			if err == nil {
				break
			}
			var partial consumererror.Metrics
			if errors.As(err, &partial) {
				left = partial.Data()
			}
		}
		written := 0
		for _, message := range kafka.taken {
			written += message.Items
		}
		if attempts == 20 || (limit == brokersLimit && written != small) {
			t.Fatalf("limit %d: %d of %d data points after %d attempts", limit, written, small, attempts)
		}
		expect(t, telemetry, map[string]int64{
			"otelcol_exporter_kafka_partition_dropped_items " + dropRefused: int64(small + 1 - written),
		})
	}
}
