package kafkapartitionexporter

import (
	"context"

	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// pushTraces writes a batch. When a part of it fails, the error carries that part alone, so that a
// retry does not write the other part again.
func (s *sender) pushTraces(ctx context.Context, batch ptrace.Traces) error {
	s.counts.cameTraces(ctx, batch)
	request, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(batch)
	if err != nil {
		return consumererror.NewPermanent(err)
	}
	return remaining(s.send(ctx, request), (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces, consumererror.NewTraces)
}

// pushMetrics is pushTraces for metrics.
func (s *sender) pushMetrics(ctx context.Context, batch pmetric.Metrics) error {
	s.counts.cameMetrics(ctx, batch)
	request, err := (&pmetric.ProtoMarshaler{}).MarshalMetrics(batch)
	if err != nil {
		return consumererror.NewPermanent(err)
	}
	return remaining(s.send(ctx, request), (&pmetric.ProtoUnmarshaler{}).UnmarshalMetrics, consumererror.NewMetrics)
}

// remaining returns the error of a request, with what is left of it for another attempt, or nil.
func remaining[T any](failed *failure, unmarshal func([]byte) (T, error), partly func(error, T) error) error {
	if failed == nil {
		return nil
	}
	if failed.whole {
		return failed.error
	}
	var request []byte
	for _, message := range failed.left { // a request is one repeated field, so concatenated requests are one request
		request = append(request, message.Value...)
	}
	left, err := unmarshal(request)
	if err != nil {
		return consumererror.NewPermanent(err) // cannot happen: we have encoded it ourselves
	}
	return partly(failed.error, left)
}
