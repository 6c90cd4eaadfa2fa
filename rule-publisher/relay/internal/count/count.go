// Package count keeps the relay's counters of what it accepted, refused, ignored or dropped, by
// reason.
package count

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// prefix starts every counter's Prometheus name; the suffix is _total.
const prefix = "spillway_relay_"

// Counters holds the value of every declared Counter. The zero value is ready and safe for
// concurrent use. It implements prometheus.Collector.
type Counters struct {
	values [declared]atomic.Uint64
}

// Metric declares a metric of the relay. The table in REFERENCE.md is generated from all of them.
type Metric struct {
	Name   string
	Type   string // of Prometheus: counter, gauge or histogram
	Help   string
	Labels []string
}

// Desc returns the description under which Prometheus collects the metric.
func (m Metric) Desc() *prometheus.Desc { return prometheus.NewDesc(m.Name, m.Help, m.Labels, nil) }

// Metrics returns the metric of each counter, in the order of the table.
func Metrics() []Metric {
	metrics := make([]Metric, 0, declared)
	for _, row := range table {
		metrics = append(metrics, Metric{Name: prefix + row.name + "_total", Type: "counter", Help: row.help})
	}
	return metrics
}

var descriptions = func() (out [declared]*prometheus.Desc) {
	for c, metric := range Metrics() {
		out[c] = metric.Desc()
	}
	return out
}()

// Add increments the counter by one.
func (c *Counters) Add(counter Counter) { c.values[counter].Add(1) }

// AddN increments the counter by n, which must not be negative.
func (c *Counters) AddN(counter Counter, n int) { c.values[counter].Add(uint64(n)) }

// Get returns the counter's value.
func (c *Counters) Get(counter Counter) uint64 { return c.values[counter].Load() }

// All returns all counters that are not zero, by name.
func (c *Counters) All() map[string]uint64 {
	all := map[string]uint64{}
	for counter := range c.values {
		if value := c.values[counter].Load(); value > 0 {
			all[Counter(counter).String()] = value
		}
	}
	return all
}

// Describe implements prometheus.Collector.
func (c *Counters) Describe(out chan<- *prometheus.Desc) {
	for _, description := range descriptions {
		out <- description
	}
}

// Collect implements prometheus.Collector.
func (c *Counters) Collect(out chan<- prometheus.Metric) {
	for counter := range c.values {
		out <- prometheus.MustNewConstMetric(descriptions[counter], prometheus.CounterValue, float64(c.values[counter].Load()))
	}
}
