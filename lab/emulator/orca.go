package main

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

// loadReportHeader carries the pod's load in each of its answers, in the text form of ORCA (Open
// Request Cost Aggregation). Envoy reads it for client_side_weighted_round_robin and for
// load_aware_locality.
const loadReportHeader = "Endpoint-Load-Metrics"

// samplesPerWindow bounds how many readings a meter keeps, and so how often it reads the pool.
const samplesPerWindow = 20

// loadMeter measures a pod's load over a window that ends now. Between two readings the load is
// taken as constant. Before the first reading the pod was idle.
type loadMeter struct {
	pool   *Pool
	window time.Duration

	mu               sync.Mutex
	answered, failed int
	samples          []loadSample // oldest first; all but the first are within the window
}

// loadSample is what the pod has done in total, up to a time.
type loadSample struct {
	at               time.Time
	busy             time.Duration // of all workers together
	answered, failed float64
}

// load is a pod's load: its busy share of workers, 0..1, and answers and failures per second.
type load struct{ utilisation, answers, failures float64 }

func newLoadMeter(pool *Pool, window time.Duration) *loadMeter {
	m := &loadMeter{pool: pool, window: window}
	m.samples = []loadSample{m.read(time.Now())}
	return m
}

// text returns the load as the header's value.
func (l load) text() string {
	return fmt.Sprintf("TEXT application_utilization=%.6f,rps_fractional=%.3f,eps=%.3f",
		l.utilisation, l.answers, l.failures)
}

// arrived takes a reading before a request is served, so that the idle time before it is known.
func (m *loadMeter) arrived() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keep(m.read(time.Now()))
}

// answer counts an answer with the status and returns the load, which includes that answer.
func (m *loadMeter) answer(status int) load {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answered++
	if status >= http.StatusInternalServerError {
		m.failed++
	}
	now := m.read(time.Now())
	then := m.before(now.at.Add(-m.window))
	m.keep(now)
	seconds := m.window.Seconds()
	share := (now.busy - then.busy).Seconds() / (seconds * float64(m.pool.Workers()))
	return load{min(1, max(0, share)), (now.answered - then.answered) / seconds, (now.failed - then.failed) / seconds}
}

func (m *loadMeter) read(now time.Time) loadSample {
	return loadSample{now, m.pool.BusyTime(), float64(m.answered), float64(m.failed)}
}

// keep appends a sample unless the last one is too recent, and drops those that no later window
// needs.
func (m *loadMeter) keep(now loadSample) {
	if now.at.Sub(m.samples[len(m.samples)-1].at) >= m.window/samplesPerWindow {
		m.samples = append(m.samples, now)
	}
	from := now.at.Add(-m.window)
	for len(m.samples) > 1 && !m.samples[1].at.After(from) {
		m.samples = m.samples[1:]
	}
}

// before returns what the pod had done at a time, interpolated between the samples around it.
func (m *loadMeter) before(at time.Time) loadSample {
	earlier := m.samples[0]
	for _, later := range m.samples[1:] {
		if later.at.After(at) {
			part := max(0, float64(at.Sub(earlier.at))/float64(later.at.Sub(earlier.at)))
			return loadSample{at,
				earlier.busy + time.Duration(part*float64(later.busy-earlier.busy)),
				earlier.answered + part*(later.answered-earlier.answered),
				earlier.failed + part*(later.failed-earlier.failed)}
		}
		earlier = later
	}
	return earlier
}

// WithLoadReports returns a handler whose answers carry the pool's load over the window. With a
// window of 0 it returns the handler itself.
func WithLoadReports(handler http.Handler, pool *Pool, window time.Duration) http.Handler {
	if window == 0 {
		return handler
	}
	meter := newLoadMeter(pool, window)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		meter.arrived()
		handler.ServeHTTP(&reportingWriter{ResponseWriter: w, meter: meter}, r)
	})
}

// reportingWriter adds the load report when the answer's headers are sent.
type reportingWriter struct {
	http.ResponseWriter
	meter *loadMeter
	begun bool
}

// WriteHeader adds the report and sends the headers.
func (w *reportingWriter) WriteHeader(status int) {
	if !w.begun {
		w.begun = true
		w.Header().Set(loadReportHeader, w.meter.answer(status).text())
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write sends the headers with status 200 if they have not been sent, and then the body.
func (w *reportingWriter) Write(body []byte) (int, error) {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(body)
}
