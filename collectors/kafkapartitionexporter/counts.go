package kafkapartitionexporter

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"spillway.dev/collectors/kafkapartitionexporter/internal/metadata"
	"spillway.dev/collectors/kafkapartitionexporter/internal/pack"
)

// Reasons for dropping items.
const (
	dropTooLarge = "item_too_large"
	dropRefused  = "refused_by_broker"
	dropInvalid  = "invalid"
)

// counts holds the exporter's own metrics for one topic.
type counts struct {
	telemetry *metadata.TelemetryBuilder
	topic     attribute.KeyValue
	labels    metric.MeasurementOption
	senders   senders
}

func newCounts(settings component.TelemetrySettings, topic string) (*counts, error) {
	telemetry, err := metadata.NewTelemetryBuilder(settings)
	if err != nil {
		return nil, err
	}
	name := attribute.String("topic", topic)
	return &counts{telemetry: telemetry, topic: name, labels: metric.WithAttributeSet(attribute.NewSet(name))}, nil
}

// age registers `oldest`, the age of the oldest message in flight, which is read whenever metrics
// are collected.
func (c *counts) age(oldest func() time.Duration) error {
	return c.telemetry.RegisterExporterKafkaPartitionOldestMessageAgeCallback(
		func(_ context.Context, observer metric.Float64Observer) error {
			observer.Observe(oldest().Seconds(), c.labels)
			return nil
		})
}

func (c *counts) because(reason string) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(c.topic, attribute.String("reason", reason)))
}

func (c *counts) written(ctx context.Context, message pack.Message) {
	c.telemetry.ExporterKafkaPartitionMessages.Add(ctx, 1, c.labels)
	c.telemetry.ExporterKafkaPartitionItems.Add(ctx, int64(message.Items), c.labels)
	c.telemetry.ExporterKafkaPartitionMessageSize.Record(ctx, int64(len(message.Value)), c.labels)
}

func (c *counts) splits(ctx context.Context, messages int) {
	c.telemetry.ExporterKafkaPartitionSplits.Add(ctx, int64(messages), c.labels)
}

func (c *counts) failed(ctx context.Context, err error, messages int) {
	c.telemetry.ExporterKafkaPartitionFailedMessages.Add(ctx, int64(messages), c.because(failureReason(err)))
}

func (c *counts) dropped(ctx context.Context, reason string, items int) {
	c.telemetry.ExporterKafkaPartitionDroppedItems.Add(ctx, int64(items), c.because(reason))
}

// failureReason maps an error to one of a few values, whatever the broker says.
func failureReason(err error) string {
	var kafka *kerr.Error
	var network net.Error
	var token *tokenError
	switch {
	case errors.As(err, &kafka):
		return kafka.Message
	case errors.As(err, &token):
		return "no_token"
	case errors.Is(err, kgo.ErrClientClosed), errors.Is(err, context.Canceled):
		return "shutdown"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.As(err, &network):
		return "network"
	}
	return "other"
}
