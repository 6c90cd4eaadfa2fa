package main

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"

	"spillway.dev/contracts/spillwayruntime"
)

const maxPatchBytes = 64 << 10

// State is what an experiment may change while the pod runs.
type State struct {
	Speed     float64 `json:"speed"`      // service times are divided by it
	Workers   int     `json:"workers"`    // size of the pool
	ErrorRate float64 `json:"error_rate"` // probability that a request fails, beside the endpoint's own
	Available bool    `json:"available"`  // false: every request is answered with 503 at once
	DelayMs   float64 `json:"delay_ms"`   // added to an answer, without a worker
	// Probability that an answer is delayed.
	DelayShare float64 `json:"delay_share"`
}

// InitialState returns the state of a pod that nobody has changed.
func InitialState(workers int) State {
	return State{Speed: 1, Workers: workers, Available: true, DelayShare: 1}
}

// Switchboard holds the state of a running pod. Its methods are safe for concurrent use.
type Switchboard struct {
	changed func(State) // called with the lock held, so that changes arrive in their order

	mu    sync.RWMutex
	state State
}

// NewSwitchboard returns a switchboard with a first state. It calls `changed` after each change.
func NewSwitchboard(state State, changed func(State)) *Switchboard {
	return &Switchboard{state: state, changed: changed}
}

// State returns the present state.
func (s *Switchboard) State() State {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.state
}

// Patch changes the keys that the JSON object names, and returns the new state. With any problem
// nothing changes.
func (s *Switchboard) Patch(body []byte) (State, []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, problems := patched(s.state, body)
	if len(problems) > 0 {
		return s.state, problems
	}
	s.state = next
	s.changed(next)
	return next, nil
}

// Handle serves GET and PATCH /state.
func (s *Switchboard) Handle(mux *http.ServeMux) {
	mux.HandleFunc("GET /state", func(w http.ResponseWriter, _ *http.Request) {
		spillwayruntime.AnswerJSON(w, http.StatusOK, s.State())
	})
	mux.HandleFunc("PATCH /state", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPatchBytes))
		if err != nil {
			answerProblems(w, []string{fmt.Sprintf("body: %v; allowed: a JSON object of at most %d bytes", err, maxPatchBytes)})
			return
		}
		next, problems := s.Patch(body)
		if len(problems) > 0 {
			answerProblems(w, problems)
			return
		}
		slog.Info("state changed", "speed", next.Speed, "workers", next.Workers, "error_rate", next.ErrorRate,
			"available", next.Available, "delay_ms", next.DelayMs, "delay_share", next.DelayShare)
		spillwayruntime.AnswerJSON(w, http.StatusOK, next)
	})
}

func answerProblems(w http.ResponseWriter, problems []string) {
	spillwayruntime.AnswerJSON(w, http.StatusBadRequest, map[string][]string{"problems": problems})
}
