package kubeletcpureceiver

import (
	"context"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

const scope = "spillway.dev/collectors/kubeletcpureceiver"

type kubeletScraper struct {
	kubelet   kubelet
	telemetry component.TelemetrySettings
	skipped   metric.Int64Counter
	// last is the time of each pod's reading that was last passed on, by UID. The kubelet may
	// measure less often than it is scraped.
	last map[string]time.Time
}

func newKubeletScraper(config *Config, telemetry component.TelemetrySettings) (*kubeletScraper, error) {
	skipped, err := telemetry.MeterProvider.Meter(scope).Int64Counter("otelcol_receiver_kubelet_cpu_skipped",
		metric.WithDescription("Pods without a CPU utilisation at a scrape, by reason."), metric.WithUnit("{pod}"))
	return &kubeletScraper{kubelet: kubelet{config: config}, telemetry: telemetry, skipped: skipped}, err
}

func (s *kubeletScraper) start(ctx context.Context, host component.Host) error {
	return s.kubelet.start(ctx, host, s.telemetry)
}

func (s *kubeletScraper) scrape(ctx context.Context) (pmetric.Metrics, error) {
	var stats summary
	var pods podList
	if err := s.kubelet.get(ctx, "/stats/summary", &stats); err != nil {
		return pmetric.NewMetrics(), err
	}
	if err := s.kubelet.get(ctx, "/pods", &pods); err != nil {
		return pmetric.NewMetrics(), err
	}
	config := s.kubelet.config
	found, missing := usages(stats, pods, config.ServiceLabel, config.Sidecars)
	for reason, count := range missing {
		s.skipped.Add(ctx, count, metric.WithAttributes(attribute.String("reason", reason)))
	}
	return metrics(s.unseen(found)), nil
}

// unseen drops readings that an earlier scrape has passed on, and forgets pods that are gone.
func (s *kubeletScraper) unseen(found []usage) []usage {
	last, fresh := make(map[string]time.Time, len(found)), found[:0:0]
	for _, reading := range found {
		if reading.at.After(s.last[reading.pod.UID]) {
			fresh = append(fresh, reading)
		}
		last[reading.pod.UID] = reading.at
	}
	s.last = last
	return fresh
}

// metrics returns one resource per pod with the cores used. Where there is a limit, it adds the
// limit and the used share of it.
func metrics(found []usage) pmetric.Metrics {
	out := pmetric.NewMetrics()
	for _, reading := range found {
		resource := out.ResourceMetrics().AppendEmpty()
		attributes := resource.Resource().Attributes()
		attributes.PutStr("service.name", reading.service)
		attributes.PutStr("k8s.namespace.name", reading.pod.Namespace)
		attributes.PutStr("k8s.pod.name", reading.pod.Name)
		attributes.PutStr("k8s.pod.uid", reading.pod.UID)
		attributes.PutStr("k8s.container.name", reading.container)
		in := resource.ScopeMetrics().AppendEmpty()
		in.Scope().SetName(scope)
		gauge(in.Metrics(), "container.cpu.usage", "{cpu}", reading.cores, reading.at)
		if reading.limit > 0 {
			gauge(in.Metrics(), "k8s.container.cpu_limit", "{cpu}", reading.limit, reading.at)
			gauge(in.Metrics(), "k8s.container.cpu_limit_utilization", "1", reading.cores/reading.limit, reading.at)
		}
	}
	return out
}

func gauge(into pmetric.MetricSlice, name, unit string, value float64, at time.Time) {
	m := into.AppendEmpty()
	m.SetName(name)
	m.SetUnit(unit)
	point := m.SetEmptyGauge().DataPoints().AppendEmpty()
	point.SetDoubleValue(value)
	point.SetTimestamp(pcommon.NewTimestampFromTime(at))
}
