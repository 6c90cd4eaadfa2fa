package kafkapartitionexporter

import (
	"context"
	"strings"
	"sync"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Limits of what the names in requests can create: the number of series, and the length of their
// labels.
const (
	maxSenders     = 1000
	maxSenderBytes = 128
)

const otherSender = "other"

// senderName is a service, and the instrumentation scope that produced its items.
type senderName struct{ service, scope string }

// senders holds the labels of every service and scope that has sent something. An alert looks for
// services that are missing from it.
type senders struct {
	mutex sync.Mutex
	known map[senderName]metric.MeasurementOption
}

// labels returns the labels of a sender. Senders beyond maxSenders share the labels of otherSender.
func (s *senders) labels(topic attribute.KeyValue, name senderName) metric.MeasurementOption {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if labels, ok := s.known[name]; ok {
		return labels
	}
	if s.known == nil {
		s.known = map[senderName]metric.MeasurementOption{}
	}
	if len(s.known) >= maxSenders {
		name = senderName{otherSender, otherSender}
		if labels, ok := s.known[name]; ok {
			return labels
		}
	}
	labels := metric.WithAttributeSet(attribute.NewSet(topic,
		attribute.String("service", name.service), attribute.String("scope", name.scope)))
	s.known[name] = labels
	return labels
}

// label returns a name from a request as a label: at most maxSenderBytes of it, as valid UTF-8. A
// label that is not UTF-8 would make the whole page of metrics fail.
func label(name string) string {
	return strings.ToValidUTF8(name[:min(len(name), maxSenderBytes)], "\uFFFD")
}

func (c *counts) came(ctx context.Context, resource pcommon.Resource, scope pcommon.InstrumentationScope, items int) {
	name := senderName{scope: label(scope.Name())}
	if service, ok := resource.Attributes().Get("service.name"); ok {
		name.service = label(service.AsString())
	}
	labels := c.senders.labels(c.topic, name)
	c.telemetry.ExporterKafkaPartitionServiceItems.Add(ctx, int64(items), labels)
}

func (c *counts) cameTraces(ctx context.Context, batch ptrace.Traces) {
	for _, of := range batch.ResourceSpans().All() {
		for _, spans := range of.ScopeSpans().All() {
			c.came(ctx, of.Resource(), spans.Scope(), spans.Spans().Len())
		}
	}
}

func (c *counts) cameMetrics(ctx context.Context, batch pmetric.Metrics) {
	for _, of := range batch.ResourceMetrics().All() {
		for _, metrics := range of.ScopeMetrics().All() {
			c.came(ctx, of.Resource(), metrics.Scope(), metrics.Metrics().Len())
		}
	}
}
