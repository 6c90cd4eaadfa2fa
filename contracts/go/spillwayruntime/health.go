// Package spillwayruntime is what Go programs do in the same way as the Python programs: logs and
// health. contracts/python/spillway_runtime is its counterpart.
package spillwayruntime

import (
	"encoding/json"
	"net/http"
)

// Report is what a program reports of itself, in the answer to GET /livez and /readyz.
type Report struct {
	Problems map[string]string  // reason by part for which the program is not ready
	Degraded map[string]string  // reason by server that is away, without which the program works
	Counters map[string]uint64  // by name
	Gauges   map[string]float64 // by name
}

// Ready returns whether the program has no problem.
func (r Report) Ready() bool { return len(r.Problems) == 0 }

// MarshalJSON has every key, also for empty maps.
func (r Report) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]any{"ready": r.Ready(), "problems": present(r.Problems), "degraded": present(r.Degraded),
		"counters": present(r.Counters), "gauges": present(r.Gauges)})
}

func present[V any](values map[string]V) map[string]V {
	if values == nil {
		return map[string]V{}
	}
	return values
}

// HandleHealth serves /livez and /readyz. /healthz is the former name of /livez; the next version
// removes it.
func HandleHealth(mux *http.ServeMux, report func() Report) {
	live := func(w http.ResponseWriter, _ *http.Request) { AnswerJSON(w, http.StatusOK, report()) }
	mux.HandleFunc("GET /livez", live)
	mux.HandleFunc("GET /healthz", live)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		found, status := report(), http.StatusOK
		if !found.Ready() {
			status = http.StatusServiceUnavailable
		}
		AnswerJSON(w, status, found)
	})
}

// AnswerJSON answers with a document.
func AnswerJSON(w http.ResponseWriter, status int, document any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(document) //nolint:errcheck // the asker is gone
}
