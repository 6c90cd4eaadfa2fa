package relay

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"spillway.dev/relay/internal/count"
	"spillway.dev/relay/internal/serve/resources"
)

// metrics are served by GET /metrics: the counters, the gauges at the time of the request, and the
// times from a push to its acceptance.
type metrics struct {
	registry  *prometheus.Registry
	pushToAck prometheus.Histogram
}

func newMetrics(r *Relay) *metrics {
	m := &metrics{registry: prometheus.NewPedanticRegistry(), pushToAck: prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    pushToAckMetric.Name,
		Help:    pushToAckMetric.Help,
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
	})}
	m.registry.MustRegister(r.counters, m.pushToAck, gauges{r},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

var pushToAckMetric = count.Metric{Name: "spillway_relay_push_to_ack_seconds", Type: "histogram",
	Help: "Time from sending a version of a resource type to an Envoy until that Envoy accepted it."}

// gauge is the declaration of a gauge and the description that is made of it.
type gauge struct {
	count.Metric
	desc *prometheus.Desc
}

func newGauge(name, help string, labels ...string) gauge {
	metric := count.Metric{Name: "spillway_relay_" + name, Type: "gauge", Help: help, Labels: labels}
	return gauge{metric, metric.Desc()}
}

var (
	readyGauge       = newGauge("ready", "1 when /readyz is 200.")
	servedGauge      = newGauge("served_ruleset_version", "Version of the ruleset that is served; 0: local-first.")
	knownGauge       = newGauge("known_ruleset_version", "Highest version of a ruleset ever taken, also when it has expired; 0: none.")
	expiryGauge      = newGauge("ruleset_expiry_timestamp_seconds", "When the newest ruleset expires (Unix time); absent without one.")
	natsGauge        = newGauge("nats_connected", "1 when connected to NATS.")
	acksGauge        = newGauge("acknowledgements_waiting", "Answers of Envoys that NATS has not stored yet.")
	certificateGauge = newGauge("certificate_expiry_timestamp_seconds", "When the relay's own certificate expires (Unix time).")
	envoysGauge      = newGauge("envoys", "Envoys with an open stream.", "service")
	placedGauge      = newGauge("envoys_placed", "Envoys with an open stream that hold resources which they accepted.", "service")
	reportingGauge   = newGauge("envoys_reporting", "Envoys that have reported their calls in flight within 10 s.", "service")
	resourcesGauge   = newGauge("snapshot_resources", "Resources that Envoys of the service are served.", "service", "type")
)

var allGauges = []gauge{readyGauge, servedGauge, knownGauge, expiryGauge, natsGauge, acksGauge, certificateGauge,
	envoysGauge, placedGauge, reportingGauge, resourcesGauge}

// Metrics returns the declarations of all metrics of the relay.
func Metrics() []count.Metric {
	metrics := append(count.Metrics(), pushToAckMetric)
	for _, gauge := range allGauges {
		metrics = append(metrics, gauge.Metric)
	}
	return metrics
}

var typeLabels = map[string]string{resources.ClusterType: "cluster", resources.EndpointType: "endpoint", resources.RouteType: "route"}

// gauges reads the relay's parts at each scrape.
type gauges struct{ *Relay }

// Describe implements prometheus.Collector.
func (g gauges) Describe(out chan<- *prometheus.Desc) {
	for _, gauge := range allGauges {
		out <- gauge.desc
	}
}

// Collect implements prometheus.Collector.
func (g gauges) Collect(out chan<- prometheus.Metric) {
	set := func(gauge gauge, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(gauge.desc, prometheus.GaugeValue, value, labels...)
	}
	status := g.loop.Status()
	set(readyGauge, truth(g.NotReady(time.Now()) == ""))
	set(servedGauge, float64(status.Version))
	set(knownGauge, float64(status.KnownVersion))
	if !status.ExpiresAt.IsZero() {
		set(expiryGauge, float64(status.ExpiresAt.UnixMilli())/1000)
	}
	set(natsGauge, truth(g.conn.IsConnected()))
	set(acksGauge, float64(g.acks.Waiting()))
	set(certificateGauge, float64(g.keeper.NotAfter().Unix()))
	for service, envoys := range g.streams.Connected() {
		set(envoysGauge, float64(envoys), service)
	}
	for service, envoys := range g.streams.Placed() {
		set(placedGauge, float64(envoys), service)
	}
	for service, sum := range g.loads.Sums(time.Now()) {
		set(reportingGauge, float64(sum.Envoys), service)
	}
	for service, sizes := range g.cache.Sizes() {
		for typeURL, label := range typeLabels {
			set(resourcesGauge, float64(sizes[typeURL]), service, label)
		}
	}
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
