package relay

import (
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"spillway.dev/contracts/spillwayruntime"
)

// ColdStart is how long a relay without a ruleset in force waits for an answer of NATS before it
// reports ready. Envoys without routes answer no request, so local-first is better, however long
// NATS is away.
const ColdStart = 5 * time.Second

// RefusedStart replaces ColdStart while NATS refuses the relay. It is longer than a rollout may
// take (600 s). So a wrong password ends the rollout, and the previous relays continue to serve.
const RefusedStart = 15 * time.Minute

// StatusPage is the answer to GET /status.
type StatusPage struct {
	Cluster       string            `json:"cluster"`
	ServedVersion uint64            `json:"served_version"` // 0: local-first
	KnownVersion  uint64            `json:"known_version"`
	InputWindow   string            `json:"input_window"`
	ExpiresAt     *time.Time        `json:"expires_at"`
	Envoys        map[string]int    `json:"envoys"`   // connected, by service
	Placed        map[string]int    `json:"placed"`   // those of them that hold resources which they accepted
	InForce       map[string]uint64 `json:"in_force"` // by service: lowest ruleset version at one of its Envoys; 0: none
	NatsConnected bool              `json:"nats_connected"`
	NatsRefusal   string            `json:"nats_refusal,omitempty"` // why NATS refuses this relay
	AcksWaiting   int               `json:"acknowledgements_waiting"`
	Certificate   time.Time         `json:"certificate_expires_at"`
	Counters      map[string]uint64 `json:"counters"` // without those that are 0
}

// healthHandler serves /livez, /readyz, /status and /metrics. /livez answers as soon as the xDS
// listener is open, also while draining.
func (r *Relay) healthHandler() http.Handler {
	mux := http.NewServeMux()
	spillwayruntime.HandleHealth(mux, r.healthReport)
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		spillwayruntime.AnswerJSON(w, http.StatusOK, r.statusPage())
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(r.metrics.registry, promhttp.HandlerOpts{}))
	return mux
}

// NotReady returns why no Envoy should connect now, or "" when the relay is ready. It is ready in
// three cases: it has a ruleset from NATS or disk that has not expired; NATS has answered that
// there is none; NATS has not answered for ColdStart, or has only refused for RefusedStart.
func (r *Relay) NotReady(now time.Time) string {
	if r.draining.Load() {
		return "draining"
	}
	why, until := "NATS has not delivered the one in force yet", r.started.Add(ColdStart)
	if refusal := r.refusal.Reason(); refusal != "" {
		why, until = "NATS refuses this relay: "+refusal, r.started.Add(RefusedStart)
	}
	if r.loop.Status().Version != 0 || r.rulesets.Answered() || now.After(until) {
		return ""
	}
	return fmt.Sprintf("no valid ruleset on disk, and %s; local-first from %s on", why, until.Format(time.RFC3339))
}

func (r *Relay) healthReport() spillwayruntime.Report {
	status := r.loop.Status()
	report := spillwayruntime.Report{Problems: map[string]string{}, Degraded: map[string]string{}, Counters: r.counters.All(),
		Gauges: map[string]float64{"served_version": float64(status.Version), "known_version": float64(status.KnownVersion)}}
	if reason := r.NotReady(time.Now()); reason != "" {
		report.Problems["ruleset"] = reason
	}
	if refusal := r.refusal.Reason(); refusal != "" {
		report.Degraded["nats"] = "refuses this relay: " + refusal
	} else if !r.conn.IsConnected() {
		report.Degraded["nats"] = "not connected"
	}
	return report
}

func (r *Relay) statusPage() StatusPage {
	status := r.loop.Status()
	page := StatusPage{Cluster: r.conf.Cluster, ServedVersion: status.Version, KnownVersion: status.KnownVersion,
		InputWindow: status.InputWindow, Envoys: r.streams.Connected(), Placed: r.streams.Placed(), InForce: r.loop.InForce(),
		NatsConnected: r.conn.IsConnected(), NatsRefusal: r.refusal.Reason(), AcksWaiting: r.acks.Waiting(), Certificate: r.keeper.NotAfter(),
		Counters: r.counters.All()}
	if status.KnownVersion != 0 {
		page.ExpiresAt = &status.ExpiresAt
	}
	return page
}
