package kafkapartitionexporter

import (
	"context"

	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// pushTraces writes a batch. When a part of it failed, its error carries that part alone, so that a retry does not
// write the other part again.
func (s *sender) pushTraces(ctx context.Context, batch ptrace.Traces) error {
	request, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(batch)
	if err != nil {
		return consumererror.NewPermanent(err)
	}
	failed := s.send(ctx, request)
	if failed == nil {
		return nil
	}
	if failed.whole {
		return failed.error
	}
	left := ptrace.NewTraces()
	for _, message := range failed.left {
		part, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(message.Value)
		if err != nil {
			return consumererror.NewPermanent(err) // we have encoded it ourselves
		}
		part.ResourceSpans().MoveAndAppendTo(left.ResourceSpans())
	}
	return consumererror.NewTraces(failed.error, left)
}

// pushMetrics is pushTraces for metrics.
func (s *sender) pushMetrics(ctx context.Context, batch pmetric.Metrics) error {
	request, err := (&pmetric.ProtoMarshaler{}).MarshalMetrics(batch)
	if err != nil {
		return consumererror.NewPermanent(err)
	}
	failed := s.send(ctx, request)
	if failed == nil {
		return nil
	}
	if failed.whole {
		return failed.error
	}
	left := pmetric.NewMetrics()
	for _, message := range failed.left {
		part, err := (&pmetric.ProtoUnmarshaler{}).UnmarshalMetrics(message.Value)
		if err != nil {
			return consumererror.NewPermanent(err)
		}
		part.ResourceMetrics().MoveAndAppendTo(left.ResourceMetrics())
	}
	return consumererror.NewMetrics(failed.error, left)
}
