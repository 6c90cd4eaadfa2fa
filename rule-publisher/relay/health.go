package main

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/nats-io/nats.go"

	"spillway.dev/relay/internal/control"
	"spillway.dev/relay/internal/count"
	"spillway.dev/relay/internal/report"
	"spillway.dev/relay/internal/serve"
)

// statusPage is what GET /status answers.
type statusPage struct {
	Cluster       string            `json:"cluster"`
	ServedVersion uint64            `json:"served_version"` // 0: local-first
	KnownVersion  uint64            `json:"known_version"`
	InputWindow   string            `json:"input_window"`
	ExpiresAt     *time.Time        `json:"expires_at"`
	Envoys        map[string]int    `json:"envoys"` // connected, by service
	NatsConnected bool              `json:"nats_connected"`
	AcksWaiting   int               `json:"acknowledgements_waiting"`
	Counters      map[string]uint64 `json:"counters"`
}

// healthHandler serves /healthz (200: it is asked only once the xDS listener is up) and /status.
func healthHandler(cluster string, loop *control.Loop, streams *serve.Streams, conn *nats.Conn, acks *report.Acks,
	counters *count.Counters) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte("ok\n")) //nolint:errcheck // the asker is gone
	})
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		status := loop.Status()
		page := statusPage{Cluster: cluster, ServedVersion: status.Version, KnownVersion: status.KnownVersion,
			InputWindow: status.InputWindow, Envoys: streams.Connected(), NatsConnected: conn.IsConnected(),
			AcksWaiting: acks.Waiting(), Counters: counters.All()}
		if status.KnownVersion != 0 {
			page.ExpiresAt = &status.ExpiresAt
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(page) //nolint:errcheck // the asker is gone
	})
	return mux
}
